package config

import (
	_ "embed"
	"fmt"
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
	var defaults fallbacks
	for line := range strings.Lines(optionsTSV) {
		cols := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		t[cols[0]] = known{types: strings.Split(cols[1], "|"), field: -1}
		if cols[2] != "" {
			defaults.add(cols[0], cols[2])
		}
	}
	for name, types := range undeclared {
		t[name] = known{types: strings.Split(types, "|"), field: -1}
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
			defaults.add(name, text)
		}
		if !isSalts {
			k.own, k.types = true, []string{"any"} // the field's own type decides
		}
		t[name] = k
	}
	for i, v := range defaults.values() {
		k := t[defaults.names[i]]
		k.fallback = v
		t[defaults.names[i]] = k
	}
	return t
})

// fallbacks are default values of this package's own tables. They are read as one YAML list: every
// command reads them at its start, and a parser for each took most of that time.
type fallbacks struct {
	names []string
	list  strings.Builder
}

func (f *fallbacks) add(name, text string) {
	f.names = append(f.names, name)
	f.list.WriteString("- " + text + "\n")
}

func (f *fallbacks) values() []any {
	v, err := yaml11.Load([]byte(f.list.String()))
	list, _ := v.([]any)
	if err != nil || len(list) != len(f.names) {
		panic(fmt.Sprintf("default values: %d of %d: %v", len(list), len(f.names), err))
	}
	return list
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

// undeclared are the types of options that Salt declares nowhere. Its commands take most of them
// from the command line, and without that from the configuration.
var undeclared = map[string]string{
	"allow_undefined": "bool", "gpg_keydir": "str", // of renderers
	"async": "bool", "batch": "int|str", "batch_safe_limit": "int", "batch_safe_size": "int|str",
	"batch_wait": "float", "chunked": "bool", "delimiter": "str", "eauth": "str",
	"executor_opts": "dict|str", "metadata": "dict|str", "mktoken": "bool",
	"module_executors": "list|str", "progress": "bool", "quiet": "bool", "return_config": "str",
	"return_kwargs": "dict|str", "start_event": "bool", "static": "bool", "subset": "int",
	"verbose":           "bool",
	"schedule_returner": "list|str", // of the schedule
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
