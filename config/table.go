package config

import (
	_ "embed"
	"reflect"
	"slices"
	"strings"
	"sync"

	"clustermaster/value/yaml11"
)

// optionsTSV lists Salt's master options: name, types joined by |, default as
// JSON or nothing. Made by testdata/options.py from the real Salt.
//
//go:embed options.tsv
var optionsTSV string

// known describes an option.
type known struct {
	types    []string // str bool int float list dict null any
	fallback any      // default value, nil if there is none
	field    int      // of Options, -1 for an option that no field holds
	own      bool     // not one of Salt's
}

// table maps every known option name; built once, read only.
var table = sync.OnceValue(func() map[string]known {
	t := make(map[string]known, 600)
	for line := range strings.Lines(optionsTSV) {
		cols := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		k := known{types: strings.Split(cols[1], "|"), field: -1}
		if cols[2] != "" {
			k.fallback = fallback(cols[2])
		}
		t[cols[0]] = k
	}
	options := reflect.TypeFor[Options]()
	for i := range options.NumField() {
		f := options.Field(i)
		name := f.Tag.Get("opt")
		if name == "" {
			continue
		}
		k, isSalts := t[name]
		k.field = i
		if text, ok := f.Tag.Lookup("own"); ok {
			k.fallback = fallback(text)
		}
		if !isSalts {
			k.own, k.types = true, []string{"any"} // the field's own type decides
		}
		t[name] = k
	}
	return t
})

// fallback reads a default from this package's own tables.
func fallback(text string) any {
	v, err := yaml11.Load([]byte(text))
	if err != nil {
		panic("default value " + text + ": " + err.Error())
	}
	return v
}

func knownNames() []string {
	t := table()
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ofBackEnds are options of external_auth's back ends, which Salt reads without declaring them.
var ofBackEnds = func() map[string]bool {
	all := map[string]bool{"auth.pam.service": true, "auth.pam.python": true,
		"auth.enable_expanded_auth_matching": true}
	for _, name := range []string{
		"accountattributename", "activedirectory", "anonymous", "auth_by_group_membership_only",
		"basedn", "binddn", "bindpw", "filter", "freeipa",
		"group_basedn", "group_filter", "groupattribute", "groupclass", "groupou",
		"minion_stripdomains", "no_verify", "persontype", "port", "scope",
		"server", "starttls", "tls", "uri",
	} {
		all["auth.ldap."+name] = true
	}
	return all
}()

// isSecret reports whether the option's value must never be shown.
func isSecret(name string) bool {
	switch name {
	case "cluster_secret", "key_pass", "signing_key_pass", "cluster_key_pass", "ssh_passwd",
		"ssh_priv_passwd", "sharedsecret", "password", "auth.ldap.bindpw":
		return true
	}
	return strings.HasSuffix(name, "_password") || strings.HasSuffix(name, "_passphrase")
}
