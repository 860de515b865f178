package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/serve/auth"
	"clustermaster/value"
)

// directoryData has people, two kinds of groups and computers.
const directoryData = `dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ou=People,dc=example,dc=org
objectClass: organizationalUnit
ou: People

dn: ou=Groups,dc=example,dc=org
objectClass: organizationalUnit
ou: Groups

dn: ou=Servers,dc=example,dc=org
objectClass: organizationalUnit
ou: Servers

dn: cn=search,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: search
userPassword: search-secret

dn: uid=carol,ou=People,dc=example,dc=org
objectClass: inetOrgPerson
objectClass: person
uid: carol
cn: Carol
sn: C
userPassword: carol-secret

dn: uid=dave,ou=People,dc=example,dc=org
objectClass: inetOrgPerson
uid: dave
cn: Dave
sn: D
employeeType: twice
userPassword: dave-secret

dn: uid=erin,ou=People,dc=example,dc=org
objectClass: inetOrgPerson
uid: erin
cn: Erin
sn: E
employeeType: twice
userPassword: erin-secret

dn: cn=admins,ou=Groups,dc=example,dc=org
objectClass: posixGroup
cn: admins
gidNumber: 1000
memberUid: carol
memberUid: dave

dn: cn=staff,ou=Groups,dc=example,dc=org
objectClass: posixGroup
cn: staff
gidNumber: 1001
memberUid: carol

dn: cn=operators,ou=Groups,dc=example,dc=org
objectClass: groupOfNames
cn: operators
member: uid=carol,ou=People,dc=example,dc=org

dn: cn=WEB1.example.org,ou=Servers,dc=example,dc=org
objectClass: computer
objectClass: device
cn: WEB1.example.org

dn: cn=web2.example.org,ou=Servers,dc=example,dc=org
objectClass: computer
objectClass: device
cn: web2.example.org
`

// computer is a class that Debian's schemas lack.
const computerSchema = `objectclass ( 1.2.840.113556.1.3.30 NAME 'computer' SUP top AUXILIARY )
`

// server is a running slapd.
type server struct{ addr, tls string }

// startDirectory starts Debian's slapd on free loopback addresses, with a folder of its own.
func startDirectory(t *testing.T) server {
	t.Helper()
	slapd, err := exec.LookPath("slapd")
	if err != nil {
		slapd = "/usr/sbin/slapd"
	}
	if _, err := os.Stat(slapd); err != nil {
		t.Skip("needs slapd; run make test")
	}
	dir, err := os.MkdirTemp("", "cmldap")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := func(name string) string { return filepath.Join(dir, name) }
	certificate(t, path("cert"), path("key"))
	modules := ""
	for _, place := range []string{"/usr/lib/ldap", "/usr/lib64/openldap", "/usr/lib/openldap"} {
		if _, err := os.Stat(filepath.Join(place, "back_mdb.so")); err == nil {
			modules = "modulepath " + place + "\nmoduleload back_mdb\n"
		}
	}
	conf := modules
	for _, name := range []string{"core", "cosine", "inetorgperson", "nis"} {
		conf += "include /etc/ldap/schema/" + name + ".schema\n"
	}
	conf += computerSchema + "TLSCertificateFile " + path("cert") + "\nTLSCertificateKeyFile " +
		path("key") + "\npidfile " + path("pid") +
		"\ndatabase mdb\nmaxsize 16777216\nsuffix \"dc=example,dc=org\"\nrootdn \"cn=root,dc=example,dc=org\"\nrootpw root-secret\ndirectory " + dir +
		"\naccess to attrs=userPassword by anonymous auth by * none\naccess to * by users read by * none\n"
	for name, text := range map[string]string{"conf": conf, "data": directoryData} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(slapd, "-T", "add", "-f", path("conf"), "-l",
		path("data")).CombinedOutput(); err != nil {
		t.Fatalf("fill the directory: %v\n%s", err, out)
	}
	s := server{free(t), free(t)}
	cmd := exec.Command(slapd, "-d", "0", "-f", path("conf"), "-h",
		"ldap://"+s.addr+" ldaps://"+s.tls)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", s.tls)
		if err == nil {
			c.Close()
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("slapd does not answer: %v\n%s", err, said.String())
		}
	}
}

// host returns the address of the loopback on which this process has its servers. On 127.0.0.1
// somebody else may take a port before its server does.
func host() net.IP {
	n := os.Getpid()
	return net.IPv4(127, byte(1+n>>14%200), byte(1+n>>7%128), byte(1+n%128))
}

// free is an address of this process that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: host()})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func certificate(t *testing.T, certPath, keyPath string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "directory"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{host()}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{certPath: {Type: "CERTIFICATE", Bytes: cert},
		keyPath: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// options are auth.ldap.* for a server, with others beside.
func (s server) options(more ...any) value.Map {
	host, port, _ := net.SplitHostPort(s.addr)
	m := dict("auth.ldap.server", host, "auth.ldap.port", port, "auth.ldap.basedn",
		"dc=example,dc=org", "auth.ldap.binddn", "cn=search,dc=example,dc=org",
		"auth.ldap.bindpw", "search-secret", "auth.ldap.filter", "uid={{ username }}")
	for _, p := range dict(more...) {
		m = m.Set(p.Key.(string), p.Value)
	}
	return m
}

func TestLDAP(t *testing.T) {
	t.Parallel()
	s := startDirectory(t)
	section := dict("ldap", dict(
		"admins%", list("@runner"), "operators%", list("@wheel"), "dave", list("test.*"),
		"carol", list(dict("ldap(ou=Servers,dc=example,dc=org)", list("cmd.run")),
			dict("ldap(ou=Nowhere,dc=example,dc=org)", list("test.version"))),
	))
	byName := []any{"auth.ldap.binddn", "uid={{username}},ou=People,dc=example,dc=org",
		"auth.ldap.bindpw", false}
	short := []any{"auth.ldap.minion_stripdomains", list(".example.org")}
	const nothing, runner = "saltutil.find_job", "saltutil.find_job runner"
	for _, c := range []struct {
		name, user, word string
		more             []any
		may              string // "": refused
	}{
		{"search and bind", "carol", "carol-secret", nil, runner},
		{"with short names of computers", "carol", "carol-secret", short, "cmd.run " + runner},
		{"by name, a group and no list", "dave", "dave-secret", nil,
			"test.ping test.version " + runner},
		{"no right at all", "erin", "erin-secret", nil, nothing},
		{"wrong password", "carol", "dave-secret", nil, ""},
		{"no password", "carol", "", nil, ""},
		{"no such user", "mallory", "carol-secret", nil, ""},
		{"a filter for a name", "*", "carol-secret", nil, ""},
		{"half a filter for a name", "carol)(uid=*", "carol-secret", nil, ""},
		{"several match", "twice", "dave-secret",
			[]any{"auth.ldap.filter", "employeeType={{ username }}"}, ""},
		{"a wrong account that searches", "carol", "carol-secret",
			[]any{"auth.ldap.bindpw", "x"}, ""},
		{"a scope of one level", "carol", "carol-secret", []any{"auth.ldap.scope", int64(1)}, ""},
		{"that level", "carol", "carol-secret",
			[]any{"auth.ldap.scope", int64(1), "auth.ldap.basedn", "ou=People,dc=example,dc=org"},
			nothing},
		{"the form of a name", "carol", "carol-secret", byName, runner},
		{"the form of a name, wrong password", "carol", "x", byName, ""},
		{"anonymous by itself", "carol", "carol-secret",
			append(slices.Clip(byName), "auth.ldap.anonymous", true), runner},
		{"anonymous by itself, wrong password", "carol", "x",
			append(slices.Clip(byName), "auth.ldap.anonymous", true), ""},
		{"by group only, by itself", "carol", "carol-secret",
			[]any{"auth.ldap.auth_by_group_membership_only", true}, runner},
		{"by group only, by itself, wrong password", "carol", "x",
			[]any{"auth.ldap.auth_by_group_membership_only", true}, ""},
		{"a name with a comma", "carol,ou=People", "carol-secret", byName, ""},
		{"groups of names", "carol", "carol-secret",
			[]any{"auth.ldap.activedirectory", true, "auth.ldap.groupclass", "groupOfNames",
				"auth.ldap.accountattributename", "uid"}, nothing + " wheel"},
		{"groups elsewhere", "carol", "carol-secret", []any{"auth.ldap.groupou", "Nowhere"},
			nothing},
		{"groups by a filter", "carol", "carol-secret", []any{
			"auth.ldap.freeipa", true, "auth.ldap.group_basedn", "ou=Groups,dc=example,dc=org",
			"auth.ldap.group_filter", "(&(memberUid={{ username }})(objectClass=posixGroup))",
		}, runner},
		{"TLS with an unknown certificate", "carol", "carol-secret",
			[]any{"auth.ldap.uri", "ldaps://" + s.tls}, ""},
		{"TLS", "carol", "carol-secret",
			[]any{"auth.ldap.uri", "ldaps://" + s.tls, "auth.ldap.no_verify", true}, runner},
		{"STARTTLS", "carol", "carol-secret",
			[]any{"auth.ldap.starttls", true, "auth.ldap.no_verify", true}, runner},
		{"nobody answers", "carol", "carol-secret", []any{"auth.ldap.port", "1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, _, said := opened(t, auth.Options{External: section, BackEnds: s.options(c.more...)},
				auth.Deps{})
			id, err := a.Authenticate(t.Context(), "10.0.0.1", creds("ldap", c.user, c.word))
			if strings.Contains(said.String(), "-secret") {
				t.Errorf("the log has a password:\n%s", said)
			}
			if c.may == "" {
				if !errors.Is(err, auth.ErrRefused) {
					t.Errorf("%+v, %v", id, err)
				}
				return
			}
			if err != nil || allowed(t, id) != c.may {
				t.Errorf("%v, groups %v; want %s\n%s", err, id.Groups, c.may, said)
			}
		})
	}
}

// A server that says too much, or nothing, ends in a refusal.
func TestStrangeDirectory(t *testing.T) {
	t.Parallel()
	for name, talk := range map[string]func(net.Conn){
		"nothing": func(c net.Conn) { time.Sleep(100 * time.Millisecond) },
		"noise": func(c net.Conn) {
			fmt.Fprint(c,
				strings.Repeat("\x30\x84\x7f\xff\xff\xff", 1<<16))
		},
		"a large answer": func(c net.Conn) {
			fmt.Fprint(c, "\x30\x84\x7f\xff\xff\xff")
			for range 20 {
				if _, err := c.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					talk(c)
					c.Close()
				}
			}()
			a, _, _ := opened(t, auth.Options{External: dict("ldap", dict("*", list(".*"))),
				BackEnds: server{addr: ln.Addr().String()}.options()}, auth.Deps{})
			if _, err := a.Authenticate(t.Context(), "10.0.0.1",
				creds("ldap", "carol", "x")); !errors.Is(err, auth.ErrRefused) {
				t.Errorf("%v", err)
			}
		})
	}
}
