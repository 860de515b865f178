package faults

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"clustermaster/test/e2e"
)

// nameService is a DNS server on loopback that knows masters, and the network of masters that ask
// it.
type nameService struct {
	base  e2e.Base
	conf  string // a resolv.conf that names it
	fault atomic.Int32
}

// What is wrong with a name service.
const (
	noFault int32 = iota
	silent
	forgetful // it knows no name
)

const domain = ".masters.test"

func newNameService(t *testing.T, masters int) *nameService {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a name service of its own")
	}
	s := &nameService{base: e2e.FreeBase(t, masters), conf: filepath.Join(t.TempDir(), "resolv.conf")}
	addr := s.base.Master(nameServiceAt)
	if err := os.WriteFile(s.conf, []byte("nameserver "+addr+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", net.JoinHostPort(addr, "53"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if reply, err := s.reply(b[:n]); err != nil {
				t.Errorf("name service: %v", err)
			} else if reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return s
}

// nameServiceAt is the number of the address of the name service.
const nameServiceAt = 40

// reply is the answer to a question, nil for none.
func (s *nameService) reply(packed []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(packed); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("question of %d bytes: %w", len(packed), err)
	}
	fault := s.fault.Load()
	if fault == silent {
		return nil, nil
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	var n int
	if _, err := fmt.Sscanf(q.Name.String(), "m%d"+domain+".", &n); err != nil || fault == forgetful {
		m.RCode = dnsmessage.RCodeNameError
	} else if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 300},
			Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(s.base.Master(n)).To4())}}}
	}
	return m.Pack()
}

// Host implements e2e.Network.
func (s *nameService) Host(n int) string { return s.base.Master(n) }

// Peer implements e2e.Network.
func (s *nameService) Peer(n int) string { return fmt.Sprintf("m%d%s", n, domain) }

// Command implements e2e.Network.
func (s *nameService) Command(_ int, path string, args []string) (string, []string) {
	return "unshare", append([]string{"--mount", "sh", "-c",
		fmt.Sprintf(`mount --bind %s /etc/resolv.conf && exec "$0" "$@"`, s.conf), path}, args...)
}

// TestNameService: masters that know each other by names find each other while the name service is
// silent or knows the names no more, also after a start, of one of them and of all.
func TestNameService(t *testing.T) {
	t.Parallel()
	s := newNameService(t, 3)
	c := &cluster{Cluster: e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3, Network: s})}
	c.StartMasters(t)
	accepted(t, c.Masters[0], "before")
	e2e.Eventually(t, healed, "all vote", func() error {
		v, err := membersOf(t, c.Masters[0])
		if err == nil && len(v.Voters) != len(c.Masters) {
			err = fmt.Errorf("voters: %v", v.Voters)
		}
		return err
	})
	for fault, name := range []string{silent: "silent", forgetful: "forgetful"} {
		if name == "" {
			continue
		}
		s.fault.Store(int32(fault))
		for _, m := range c.Masters[1:] {
			m.Kill(t)
			m.Run(t)
			c.WaitReady(t, healed, c.Masters...)
		}
		accepted(t, c.Masters[2], name+"-one")
		for _, m := range c.Masters {
			m.Kill(t)
		}
		for _, m := range c.Masters {
			m.Run(t)
		}
		c.WaitReady(t, healed, c.Masters...)
		accepted(t, c.Masters[0], name+"-all")
	}
	oneHistory(t, c.Masters...)
}
