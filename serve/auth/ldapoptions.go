package auth

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-ldap/ldap/v3"

	"clustermaster/value"
)

// ldapOptions are the options auth.ldap.*.
type ldapOptions struct {
	address, host           string
	tls, startTLS, noVerify bool
	bindDN, bindPassword    string
	baseDN                  string
	scope                   int
	filter                  string

	groupOU, groupClass, groupAttribute string
	accountAttribute, personType        string
	groupBaseDN, groupFilter            string
	activeDirectory, freeIPA            bool
	stripDomains                        []string
}

// readLDAP reads the options by their full names.
func readLDAP(options value.Map) (o ldapOptions, err error) {
	r := optionReader{options: options, prefix: "auth.ldap."}
	o = ldapOptions{
		startTLS: r.flag("starttls"), noVerify: r.flag("no_verify"), bindDN: r.text("binddn", ""),
		bindPassword: r.text("bindpw", ""),
		baseDN:       r.text("basedn", ""), filter: r.text("filter", ""),
		groupOU: r.text("groupou", "Groups"), groupClass: r.text("groupclass", "posixGroup"),
		groupAttribute:   r.text("groupattribute", "memberOf"),
		accountAttribute: r.text("accountattributename", "memberUid"),
		personType:       r.text("persontype", "person"),
		groupBaseDN:      r.text("group_basedn", ""), groupFilter: r.text("group_filter", ""),
		activeDirectory: r.flag("activedirectory"), freeIPA: r.flag("freeipa"),
		stripDomains: r.texts("minion_stripdomains"),
	}
	secure, anonymous, byGroup := r.flag("tls"), r.flag("anonymous"),
		r.flag("auth_by_group_membership_only")
	scope := r.text("scope", "2")
	uri, server, port := r.text("uri", ""), r.text("server", "localhost"), r.text("port", "389")
	switch {
	case r.err != nil:
		return o, r.err
	case o.startTLS && secure:
		return o, errors.New("auth.ldap.starttls and auth.ldap.tls are both set; remove one")
	case anonymous && byGroup: // either alone changes nothing in Salt
		return o,
			errors.New("auth.ldap.anonymous and auth.ldap.auth_by_group_membership_only together ask for no " +
				"password: they would let in anyone who knows a name; remove one")
	case anonymous && o.bindDN != "" && o.bindPassword != "":
		return o,
			errors.New("auth.ldap.anonymous with auth.ldap.bindpw lets nobody in; remove one")
	case o.bindDN == "":
		return o,
			errors.New("auth.ldap.binddn is missing: an account that may search, with auth.ldap.bindpw, or the form of users' names such as uid={{ username }},ou=people,dc=example,dc=org")
	case o.bindPassword == "" && !strings.Contains(o.bindDN, "{{"):
		return o,
			errors.New("auth.ldap.bindpw is missing: without it auth.ldap.binddn must hold {{ username }}")
	case o.bindPassword != "" && o.filter == "":
		return o, errors.New("auth.ldap.filter is missing, such as uid={{ username }}")
	case o.freeIPA && (o.groupBaseDN == "" || o.groupFilter == ""):
		return o,
			errors.New("auth.ldap.freeipa needs auth.ldap.group_basedn and auth.ldap.group_filter")
	}
	if o.filter != "" && !strings.HasPrefix(o.filter, "(") {
		o.filter = "(" + o.filter + ")"
	}
	for _, text := range []string{o.bindDN, o.filter, o.groupFilter} {
		if rest := userField.ReplaceAllString(text, "x"); strings.Contains(rest, "{{") ||
			strings.Contains(rest, "{%") {
			return o, fmt.Errorf("auth.ldap: %q: only {{ username }} is filled in", text)
		}
	}
	if _, err := ldap.CompileFilter(expandUser(o.filter, "x")); o.filter != "" && err != nil {
		return o, fmt.Errorf("auth.ldap.filter: %w", err)
	}
	for _, name := range []string{o.groupClass, o.groupAttribute, o.accountAttribute,
		o.personType} {
		if !attributeName.MatchString(name) {
			return o, fmt.Errorf("auth.ldap: %q is not the name of an attribute or class", name)
		}
	}
	if o.scope, err = strconv.Atoi(scope); err != nil ||
		!slices.Contains([]int{ldap.ScopeBaseObject, ldap.ScopeSingleLevel, ldap.ScopeWholeSubtree},
			o.scope) {
		return o, fmt.Errorf("auth.ldap.scope %q: use 0, 1 or 2", scope)
	}
	o.address, o.host, o.tls, err = addressOf(uri, server, port, secure)
	return o, err
}

var (
	userField     = regexp.MustCompile(`\{\{\s*username\s*\}\}`)
	attributeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.;-]*$`)
)

// expandUser inserts an escaped name into text.
func expandUser(text, safe string) string { return userField.ReplaceAllLiteralString(text, safe) }

// optionReader reads options of one family and keeps the first error.
type optionReader struct {
	options value.Map
	prefix  string
	err     error
}

func (r *optionReader) wrong(name, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s%s is not %s", r.prefix, name, want)
	}
}

func (r *optionReader) text(name, fallback string) string {
	v, ok := r.options.Get(r.prefix + name)
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case bool, nil: // examples use False for no value
		if v == true {
			r.wrong(name, "text")
		}
		if ok && v == false {
			return ""
		}
		return fallback
	}
	r.wrong(name, "text")
	return ""
}

func (r *optionReader) flag(name string) bool {
	v, _ := r.options.Get(r.prefix + name)
	switch v := v.(type) {
	case bool:
		return v
	case nil:
		return false
	}
	r.wrong(name, "True or False")
	return false
}

func (r *optionReader) texts(name string) []string {
	v, _ := r.options.Get(r.prefix + name)
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		return []string{v}
	case []any:
		out := make([]string, len(v))
		for i := range v {
			text, ok := v[i].(string)
			if !ok {
				r.wrong(name, "a list of texts")
			}
			out[i] = text
		}
		return out
	}
	r.wrong(name, "a list of texts")
	return nil
}
