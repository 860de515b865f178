package commands

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"clustermaster/e2e"
	transport "clustermaster/transport/minion"
	"clustermaster/wire"
)

// keyNumber is one of two RSA keys, made when first asked for, the same for both masters.
func keyNumber(t testing.TB, n int) *wire.PrivateKey {
	t.Helper()
	k, err := keys[n]()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var keys = func() (list [2]func() (*wire.PrivateKey, error)) {
	for i := range list {
		list[i] = sync.OnceValues(func() (*wire.PrivateKey, error) { return wire.GeneratePrivateKey(2048) })
	}
	return list
}()

// offer signs in to both masters as a minion that nobody knows, so that its key lies there.
func (p *pair) offer(t testing.TB, key int, ids ...string) {
	t.Helper()
	for _, s := range []*side{p.theirs, p.ours} {
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
	packed, err := wire.AuthRequest{ID: id, Version: 3, Key: key, Nonce: nonce, EncAlgo: wire.EncSHA1, SigAlgo: wire.SigSHA1}.Pack()
	if err != nil {
		return err
	}
	c, err := transport.DialRequests(ctx, net.JoinHostPort(s.Addr, strconv.Itoa(e2e.RequestPort)), transport.ClientOptions{})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do(ctx, packed)
	return err
}
