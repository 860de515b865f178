package faults

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"clustermaster/test/e2e"
	"clustermaster/transport/peer/peerpb"
)

// metric adds up a counter or gauge of a master over all labels that contain the given text. Series
// with labels may be missing until something is counted; one without must be there.
func metric(t testing.TB, m *e2e.Master, name, label string) float64 {
	t.Helper()
	sum, found := 0.0, false
	for line := range strings.Lines(m.Metrics(t)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if base, labels, _ := strings.Cut(series, "{"); base == name &&
			strings.Contains(labels, label) {
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			sum, found = sum+f, true
		}
	}
	if label == "" && !found {
		t.Fatalf("%s has no metric %s", m.ID, name)
	}
	return sum
}

const refusedTotal = "clustermaster_peer_refused_total"

// refusedFor is how many connections a master's peer port has refused for these reasons.
func refusedFor(t testing.TB, m *e2e.Master, reasons ...string) (sum float64) {
	t.Helper()
	for _, r := range reasons {
		sum += metric(t, m, refusedTotal, `reason="`+r+`"`)
	}
	return sum
}

// turnedAway expects the effects of do at a master's peer port to be counted under one of the
// reasons and logged with an address.
func turnedAway(t *testing.T, m *e2e.Master, addr string, do func(), reasons ...string) {
	t.Helper()
	count := func() float64 { return refusedFor(t, m, reasons...) }
	before, from := count(), logSize(m)
	do()
	e2e.Eventually(t, healed, fmt.Sprintf("%s counts a refusal for %v", m.ID, reasons),
		func() error {
			if count() <= before {
				return errors.New("not yet")
			}
			return nil
		})
	e2e.Eventually(t, healed, fmt.Sprintf("%s logs a refusal of %s for %v", m.ID, addr, reasons),
		func() error {
			for _, r := range reasons {
				if logLine(t, m, from, "peer connection refused", "addr="+addr, "reason="+r) != "" {
					return nil
				}
			}
			return errors.New("not there")
		})
}

// ownCertificate is a certificate that anyone can make.
func ownCertificate(t testing.TB) (tls.Certificate, [32]byte) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		sha256.Sum256(cert.RawSubjectPublicKeyInfo)
}

// knock opens a connection, lets f use it, and waits until the other end closes.
func knock(t testing.TB, addr string, f func(net.Conn) error) (heard []byte) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(healed)); err != nil {
		t.Error(err)
	}
	_ = f(conn) // the other end may close while we talk
	heard, err = io.ReadAll(io.LimitReader(conn, 1<<20))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open after %v", healed)
	}
	return heard
}

// attempt tries the join channel without the secret. It returns what came after the hellos.
func attempt(conn net.Conn, cert tls.Certificate, spki [32]byte) ([]byte, error) {
	c := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		NextProtos: []string{"join"}, Certificates: []tls.Certificate{cert}})
	hello, err := proto.Marshal(&peerpb.JoinHello{
		Protocol: 1, Id: "stranger", Addr: "192.0.2.1:4520", Incarnation: "0123456789abcdef",
		ClusterId: "e2e", Version: "0", Spki: spki[:], Nonce: make([]byte, 32),
	})
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(hello))),
		hello...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
		return nil, err
	}
	proof, err := proto.Marshal(&peerpb.JoinProof{Mac: make([]byte, 32)})
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(proof))),
		proof...)); err != nil {
		return nil, err
	}
	return io.ReadAll(c)
}

// TestStrangers: only members, and joiners who know the present secret, get in at a real cluster's
// port. Every other attempt is counted and logged.
func TestStrangers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "")
	m := c.Masters[0]
	port := net.JoinHostPort(m.Addr, strconv.Itoa(e2e.PeerPort))
	cert, spki := ownCertificate(t)
	conn, err := net.Dial("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	self := conn.LocalAddr().(*net.TCPAddr).IP.String()
	conn.Close()

	for _, tt := range []struct {
		name    string
		talk    func(net.Conn) error
		reasons []string
	}{
		{"garbage", func(c net.Conn) error {
			b := make([]byte, 4096)
			rand.Read(b)
			_, err := c.Write(b)
			return err
		}, []string{"tls"}},
		{"gRPC in clear", func(c net.Conn) error {
			_, err := io.WriteString(c,
				"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			return err
		}, []string{"tls"}},
		// the stream of hashicorp/raft: the number of the call, 0 for appendEntries, then msgpack
		{"Raft in clear", func(c net.Conn) error {
			_, err := c.Write(append([]byte{0},
				bytes.Repeat([]byte{0x8b, 0xa4, 'T', 'e', 'r', 'm', 0xff}, 100)...))
			return err
		}, []string{"tls"}},
		{"TLS for a browser", func(c net.Conn) error {
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true,
				NextProtos: []string{"h2", "http/1.1"}}).Handshake()
		}, []string{"alpn"}},
		{"TLS without protocol", func(c net.Conn) error {
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true,
				Certificates: []tls.Certificate{cert}}).Handshake()
		}, []string{"alpn"}},
		{"TLS 1.2", func(c net.Conn) error {
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
				NextProtos: []string{"raft"}, Certificates: []tls.Certificate{cert}}).Handshake()
		}, []string{"tls"}},
		{"Raft with another's certificate", func(c net.Conn) error {
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"raft"},
				Certificates: []tls.Certificate{cert}}).Handshake()
		}, []string{"unpinned"}},
		{"gRPC with another's certificate", func(c net.Conn) error {
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"rpc"},
				Certificates: []tls.Certificate{cert}}).Handshake()
		}, []string{"unpinned"}},
		{"Raft without a certificate", func(c net.Conn) error {
			t := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"raft"}})
			if err := t.Handshake(); err != nil {
				return err
			}
			_, err := t.Read(make([]byte, 1))
			return err
		}, []string{"tls", "certificate"}},
		{"silence", func(net.Conn) error { return nil }, []string{"timeout"}},
		{"a guess at the secret", func(c net.Conn) error {
			if said, err := attempt(c, cert, spki); len(said) > 0 {
				t.Errorf("it was told %x, %v", said, err)
			}
			return nil
		}, []string{"join_proof"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// One line stands for all refusals of a source and reason in ten seconds.
			before := refusedFor(t, m, tt.reasons...)
			knock(t, port, tt.talk)
			e2e.Eventually(t, healed, "it is counted", func() error {
				if refusedFor(t, m, tt.reasons...) <= before {
					return errors.New("not yet")
				}
				return nil
			})
			found := slices.ContainsFunc(tt.reasons, func(r string) bool {
				return logLine(t, m, 0, "peer connection refused", "addr="+self, "reason="+r) != ""
			})
			if !found {
				t.Errorf("no line names %s with %v", self, tt.reasons)
			}
		})
	}

	joiner := c.joiner(t, peers(c.net.Peer(1)))
	good := joiner.Config(t)
	t.Run("wrong secret", func(t *testing.T) {
		joiner.Configure(t, strings.Replace(good, c.Secret, "another-secret-9876543210", 1))
		turnedAway(t, m, joiner.Addr, func() { joiner.Run(t) }, "join_proof")
		logged(t, joiner, 0, "not a member of the cluster yet",
			"it has another cluster_secret or cluster_id")
		joiner.Kill(t)
	})
	t.Run("empty secret", func(t *testing.T) {
		joiner.Configure(t, strings.Replace(good, c.Secret, "''", 1))
		joiner.Run(t)
		code, err := joiner.Wait(healed)
		if err != nil || code == 0 {
			t.Errorf("it ended with %d, %v", code, err)
		}
		if text, err := os.ReadFile(joiner.Output); err != nil ||
			!strings.Contains(string(text), "cluster_secret") {
			t.Errorf("it doesn't say why: %s, %v", text, err)
		}
	})
	t.Run("replay", func(t *testing.T) {
		said := record(t, c, joiner, good, port)
		if len(said) < 500 {
			t.Fatalf("only %d bytes were recorded", len(said))
		}
		joins := metric(t, m, "clustermaster_peer_joins_total", "")
		before := metric(t, m, refusedTotal, `reason="tls"`)
		knock(t, port, func(conn net.Conn) error { _, err := conn.Write(said); return err })
		e2e.Eventually(t, healed, "the replay is counted", func() error {
			if metric(t, m, refusedTotal, `reason="tls"`) <= before {
				return errors.New("not yet")
			}
			return nil
		})
		equal(t, "joins after the replay",
			metric(t, m, "clustermaster_peer_joins_total", ""), joins)
	})
	e2e.Eventually(t, healed, "the recorded joiner is ready", joiner.Ready)

	t.Run("removed", func(t *testing.T) {
		from := logSize(m)
		r := m.Runner(t, "--out=json", "cluster.remove", joiner.ID)
		succeeds(t, r)
		logged(t, m, from, "peer connection refused", "addr="+joiner.Addr, "reason=unpinned")
		e2e.Eventually(t, healed, "the removed one serves no more", func() error {
			if joiner.Probe("/readyz") == nil {
				return errors.New("it is ready")
			}
			return nil
		})
		oneHistory(t, c.Masters[:3]...)
		joiner.Kill(t)
		_, secret, ok := strings.Cut(r.Stdout, `"cluster_secret": "`)
		if secret, _, _ = strings.Cut(secret, `"`); !ok || len(secret) < 32 {
			t.Fatalf("no new secret\n%v", r)
		}

		old := c.joiner(t, same)
		turnedAway(t, m, old.Addr, func() { old.Run(t) }, "join_proof")
		old.Kill(t)
		old.Configure(t, strings.Replace(old.Config(t), c.Secret, secret, 1))
		old.Run(t)
		e2e.Eventually(t, healed, "with the new secret it joins", old.Ready)
		nothingTold(t, c, c.Secret, secret)
	})
	t.Run("many", func(t *testing.T) {
		from, limited := logSize(m), metric(t, m, refusedTotal, `reason="join_limit"`)
		var wg sync.WaitGroup
		const tries = 300
		for range 10 {
			wg.Go(func() {
				for range tries / 10 {
					knock(t, port, func(conn net.Conn) error {
						_,
							err := attempt(conn, cert, spki)
						return err
					})
				}
			})
		}
		wg.Wait()
		n := metric(t, m, refusedTotal, `reason="join_limit"`) - limited
		if n < tries/2 {
			t.Errorf("%v of %d tries were limited", n, tries)
		}
		b, err := os.ReadFile(m.Log)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(b[from:]), "peer connection refused"); lines > 20 {
			t.Errorf("%d lines for %d tries", lines, tries)
		}
		for _, m := range c.Masters[:3] {
			if err := m.Ready(); err != nil {
				t.Errorf("%s: %v", m.ID, err)
			}
		}
	})
}

// record has a joiner join through a relay of the test. It returns the joiner's bytes in the
// session that admitted it.
func record(t *testing.T, c *cluster, joiner *e2e.Master, config, to string) []byte {
	t.Helper()
	probe, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	here := probe.LocalAddr().(*net.TCPAddr).IP.String()
	probe.Close()
	ln, err := net.Listen("tcp", net.JoinHostPort(here, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	sessions := make(chan []byte, 100)
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				go func() { _, _ = io.Copy(in, out); in.Close() }()
				var said bytes.Buffer
				_, _ = io.Copy(io.MultiWriter(out, &said), in)
				sessions <- said.Bytes()
			}()
		}
	}()
	joiner.Configure(t, peers(ln.Addr().String())(config))
	from := logSize(joiner)
	joiner.Run(t)
	logged(t, joiner, from, "admitted to the cluster")
	return <-sessions
}

// closedFolder reports whether a folder on the way to path excludes all other users.
func closedFolder(root, path string) bool {
	for dir := filepath.Dir(path); len(dir) >= len(root); dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.Mode().Perm()&0o077 == 0 {
			return true
		}
	}
	return false
}

// nothingTold expects no secrets in logs. Files that contain secrets, and all of the master's data,
// must be accessible to the master alone.
func nothingTold(t *testing.T, c *cluster, secrets ...string) {
	t.Helper()
	for _, m := range c.Masters {
		texts := map[string]string{}
		for _, name := range []string{m.Log, m.Output} {
			if b, err := os.ReadFile(name); err == nil {
				texts[name] = string(b)
			}
		}
		files := 0
		err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || path == m.Log || path == m.Output ||
				strings.HasPrefix(path, m.ConfDir) {
				return stays(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return stays(err)
			}
			own := strings.Contains(path, "/cache/clustermaster/")
			for _, s := range secrets {
				own = own || strings.Contains(string(b), s)
			}
			if block := bytes.Index(b, []byte("PRIVATE KEY-----\n")); block >= 0 {
				own = true
				if line, _, ok := bytes.Cut(b[block+17:], []byte("\n")); ok {
					for name, text := range texts {
						if strings.Contains(text, string(line)) {
							t.Errorf("%s has the key of %s", name, path)
						}
					}
				}
			}
			if !own {
				return nil
			}
			files++
			if st, err := d.Info(); err == nil && st.Mode().Perm()&0o077 != 0 &&
				!closedFolder(m.Dir, path) {
				t.Errorf("%s has mode %v", path, st.Mode())
			}
			return nil
		})
		if err != nil || files == 0 {
			t.Errorf("%s: %d files with secrets were found, %v", m.ID, files, err)
		}
		for name, text := range texts {
			for _, s := range append(secrets, "PRIVATE KEY") {
				if strings.Contains(text, s) {
					t.Errorf("%s has a secret", name)
				}
			}
		}
	}
}
