package commands

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"clustermaster/test/e2e"
	transport "clustermaster/transport/minion"
	"clustermaster/wire"
)

// keyNumber is one of two RSA keys. They are fixed and the same for both masters, because Salt's
// answers show them.
func keyNumber(t testing.TB, n int) *wire.PrivateKey {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("offered-%d.pem", n)))
	if err != nil {
		t.Fatal(err)
	}
	k, err := wire.ParsePrivateKey(b, "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// offer signs in to both masters as an unknown minion, so that its key is offered there.
func (p *pair) offer(t testing.TB, key int, ids ...string) {
	t.Helper()
	for _, s := range p.sides() {
		for _, id := range ids {
			if err := s.offer(id, keyNumber(t, key)); err != nil {
				t.Fatalf("offer key of %s to %s: %v", id, s.kind, err)
			}
		}
	}
}

func (s *side) offer(id string, key *wire.PrivateKey) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	nonce, err := wire.NewNonce()
	if err != nil {
		return err
	}
	packed, err := wire.AuthRequest{ID: id, Version: 3, Key: key, Nonce: nonce,
		EncAlgo: wire.EncSHA1, SigAlgo: wire.SigSHA1}.Pack()
	if err != nil {
		return err
	}
	c, err := transport.DialRequests(ctx, net.JoinHostPort(s.Addr, strconv.Itoa(e2e.RequestPort)),
		transport.ClientOptions{})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do(ctx, packed)
	return err
}
