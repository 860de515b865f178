package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-ldap/ldap/v3"

	"clustermaster/value"
)

// Bounds of a directory's answers.
const (
	ldapTime      = 5 * time.Second // of each step
	maxLDAPBytes  = 16 << 20        // per connection
	maxLDAPGroups = 1000
	maxComputers  = 50_000 // of an ldap(...) entry
)

// directory queries an LDAP server.
type directory struct {
	o   ldapOptions
	log *slog.Logger
}

func newLDAP(options value.Map, log *slog.Logger) (*directory, error) {
	o, err := readLDAP(options)
	if err != nil {
		return nil, err
	}
	return &directory{o, log}, nil
}

// searcher reports whether the options name an account that may search.
func (d *directory) searcher() bool { return d.o.bindDN != "" && d.o.bindPassword != "" }

func (d *directory) check(ctx context.Context, user, password string) (known, bool, error) {
	if password == "" { // a server accepts anybody without a password
		return known{}, false, nil
	}
	dn := expandUser(d.o.bindDN, ldap.EscapeDN(user))
	var search *ldap.Conn
	if d.searcher() {
		var err error
		if search, err = d.bind(ctx, dn, d.o.bindPassword); err != nil {
			return known{}, false, fmt.Errorf("bind as auth.ldap.binddn: %w", err)
		}
		defer search.Close()
		found, err := find(search, d.o.baseDN, d.o.scope,
			expandUser(d.o.filter, ldap.EscapeFilter(user)), 2, "1.1")
		switch {
		case err != nil:
			return known{}, false, fmt.Errorf("search the user: %w", err)
		case len(found) == 0:
			return known{}, false, nil
		case len(found) > 1:
			return known{}, false,
				errors.New("several entries match auth.ldap.filter; make it narrower")
		}
		dn = found[0].DN
	}
	if dn == "" {
		return known{}, false, errors.New("the user's entry has no name")
	}
	own, err := d.bind(ctx, dn, password)
	if ldap.IsErrorWithCode(err, ldap.LDAPResultInvalidCredentials) {
		return known{}, false, nil
	}
	if err != nil {
		return known{}, false, fmt.Errorf("bind as the user: %w", err)
	}
	defer own.Close()
	if search == nil {
		search = own
	}
	groups, err := d.groups(search, user)
	if err != nil { // as in Salt: rights given to the name itself remain
		d.log.Warn("groups of a user are not known", "eauth", "ldap", "user", user, "err", err)
	}
	return known{groups: groups}, true, nil
}

// bind makes a connection and proves a password on it. The connection closes when ctx ends.
func (d *directory) bind(ctx context.Context, dn, password string) (*ldap.Conn, error) {
	dialer := net.Dialer{Timeout: ldapTime}
	raw, err := dialer.DialContext(ctx, "tcp", d.o.address)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := raw.SetDeadline(end); err != nil {
			raw.Close()
			return nil, err
		}
	}
	var conn net.Conn = &boundedConn{Conn: raw, left: maxLDAPBytes}
	trust := &tls.Config{ServerName: d.o.host, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: d.o.noVerify} // auth.ldap.no_verify asks for it
	if d.o.tls {
		secured := tls.Client(conn, trust)
		if err := secured.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		conn = secured
	}
	c := ldap.NewConn(conn, d.o.tls)
	c.Start()
	c.SetTimeout(ldapTime)
	if d.o.startTLS {
		if err := c.StartTLS(trust); err != nil {
			c.Close()
			return nil, err
		}
	}
	if err := c.Bind(dn, password); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// boundedConn closes a connection whose server sends too much.
type boundedConn struct {
	net.Conn
	left int64
}

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes of answers: %w", maxLDAPBytes, io.ErrShortBuffer)
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

func find(c *ldap.Conn, base string, scope int, filter string, limit int,
	attributes ...string) ([]*ldap.Entry, error) {
	r, err := c.Search(ldap.NewSearchRequest(base, scope, ldap.NeverDerefAliases, limit,
		int(ldapTime/time.Second), false, filter, attributes, nil))
	if ldap.IsErrorWithCode(err, ldap.LDAPResultSizeLimitExceeded) && r != nil &&
		len(r.Entries) >= limit {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return r.Entries, nil
}

// groups lists the groups of a user, in the way that the options say.
func (d *directory) groups(c *ldap.Conn, user string) ([]string, error) {
	safe := ldap.EscapeFilter(user)
	var out []string
	switch {
	case d.o.activeDirectory:
		filter := fmt.Sprintf("(&(%s=%s)(objectClass=%s))", d.o.accountAttribute, safe,
			d.o.personType)
		found, err := find(c, d.o.baseDN, ldap.ScopeWholeSubtree, filter, 1, "distinguishedName")
		if err != nil || len(found) == 0 {
			return nil, err
		}
		filter = fmt.Sprintf("(&(member=%s)(objectClass=%s))", ldap.EscapeFilter(found[0].DN),
			d.o.groupClass)
		if found, err = find(c, d.o.baseDN, ldap.ScopeWholeSubtree, filter, maxLDAPGroups,
			d.o.accountAttribute, "cn"); err != nil {
			return nil, err
		}
		for _, e := range found {
			if cn := e.GetAttributeValue("cn"); cn != "" {
				out = append(out, cn)
			}
		}
	case d.o.freeIPA:
		found, err := find(c, d.o.groupBaseDN, ldap.ScopeWholeSubtree,
			expandUser(d.o.groupFilter,
				safe), maxLDAPGroups, d.o.accountAttribute, d.o.groupAttribute, "cn")
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			for _, member := range append(e.GetAttributeValues(d.o.accountAttribute),
				e.GetAttributeValues(d.o.groupAttribute)...) {
				if firstName(member) == user {
					out = append(out, firstName(e.DN))
				}
			}
		}
	default:
		base := d.o.baseDN
		if d.o.groupOU != "" {
			base = "ou=" + d.o.groupOU + "," + base
		}
		filter := fmt.Sprintf("(&(%s=%s)(objectClass=%s))", d.o.accountAttribute, safe,
			d.o.groupClass)
		found, err := find(c, base, ldap.ScopeWholeSubtree, filter, maxLDAPGroups,
			d.o.accountAttribute, "cn", d.o.groupAttribute)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			for _, account := range e.GetAttributeValues(d.o.accountAttribute) {
				if account == user {
					out = append(out, e.GetAttributeValue("cn"))
				}
			}
			if firstName(e.DN) == user {
				for _, group := range e.GetAttributeValues(d.o.groupAttribute) {
					out = append(out, firstName(group))
				}
			}
		}
	}
	return out, nil
}

// firstName returns the first value of a name such as cn=admins,ou=Groups.
func firstName(dn string) string {
	first, _, _ := strings.Cut(dn, ",")
	return first[strings.LastIndex(first, "=")+1:]
}

// expand replaces ldap(...) by the minions that are computers below that part of the directory.
func (d *directory) expand(ctx context.Context, list []any) ([]any, error) {
	var c *ldap.Conn
	out := make([]any, 0, len(list))
	for _, entry := range list {
		m, ok := entry.(value.Map)
		if !ok {
			out = append(out, entry)
			continue
		}
		for _, p := range m {
			base, ok := computersOf(p.Key)
			if !ok || !d.searcher() {
				out = append(out, value.Map{p})
				continue
			}
			if c == nil {
				var err error
				if c, err = d.bind(ctx, d.o.bindDN, d.o.bindPassword); err != nil {
					return nil, fmt.Errorf("bind as auth.ldap.binddn: %w", err)
				}
				defer c.Close()
			}
			found, err := find(c, base, ldap.ScopeWholeSubtree, "(objectClass=computer)",
				maxComputers, "cn")
			if err != nil && !ldap.IsErrorWithCode(err, ldap.LDAPResultNoSuchObject) {
				return nil, fmt.Errorf("search computers: %w", err)
			}
			if ids := d.ids(found); len(ids) > 0 {
				out = append(out, value.Map{{Key: "L@" + strings.Join(ids, ","), Value: p.Value}})
			}
		}
	}
	return out, nil
}

// computersOf returns the part of the directory that a key of the form ldap(...) names.
func computersOf(key any) (base string, ok bool) {
	text, _ := key.(string)
	if text, ok = strings.CutPrefix(text, "ldap("); !ok {
		return "", false
	}
	return strings.CutSuffix(text, ")")
}

// ids returns the minions of computers. It skips a name that could mean more than one minion.
func (d *directory) ids(found []*ldap.Entry) []string {
	var out []string
	for _, e := range found {
		id := strings.ToLower(e.GetAttributeValue("cn"))
		for _, domain := range d.o.stripDomains {
			if short, ok := strings.CutSuffix(id, domain); ok {
				id = short
				break
			}
		}
		if id != "" && !strings.ContainsAny(id, ", \t\n\"'()") {
			out = append(out, id)
		}
	}
	return out
}

// addressOf reads uri, or else server and port.
func addressOf(uri, server, port string, secure bool) (address, host string, tls bool, err error) {
	if uri == "" {
		return net.JoinHostPort(server, port), server, secure, nil
	}
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" || u.Scheme != "ldap" && u.Scheme != "ldaps" {
		return "", "", false, fmt.Errorf("auth.ldap.uri %q: write ldap://host or ldaps://host", uri)
	}
	port = u.Port()
	if port == "" {
		port = map[string]string{"ldap": "389", "ldaps": "636"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port), u.Hostname(), u.Scheme == "ldaps", nil
}
