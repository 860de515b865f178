package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"clustermaster/test/e2e"
	transport "clustermaster/transport/minion"
	"clustermaster/value"
	"clustermaster/wire"
)

// minion is the minion's side of single requests. It keeps no connection. Not for concurrent use.
type minion struct {
	id     string
	key    *wire.PrivateKey
	sender wire.Sender
	answer wire.AuthAnswer // of the last sign-in
}

// minionKey is shared by all: masters tell minions apart by their ids.
var minionKey = sync.OnceValues(func() (*wire.PrivateKey,
	error) {
	return wire.GeneratePrivateKey(2048)
})

func newMinion(t testing.TB, id string) *minion {
	t.Helper()
	key, err := minionKey()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := wire.TokenSalt(key)
	if err != nil {
		t.Fatal(err)
	}
	return &minion{id: id, key: key, sender: wire.Sender{Version: 3, ID: id, Tok: tok,
		EncAlgo: wire.EncSHA1, SigAlgo: wire.SigSHA1}}
}

// send makes one request on its own connection.
func send(ctx context.Context, addr string, payload []byte) ([]byte, error) {
	c, err := transport.DialRequests(ctx, addr, transport.ClientOptions{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(ctx, payload)
}

// signIn signs in at a master. word is accepted, pending or rejected.
func (m *minion) signIn(ctx context.Context, at *e2e.Master) (word string, err error) {
	nonce, err := wire.NewNonce()
	if err != nil {
		return "", err
	}
	a := wire.AuthRequest{Version: 3, ID: m.id, Key: m.key, Nonce: nonce, EncAlgo: wire.EncSHA1,
		SigAlgo: wire.SigSHA1}
	packed, err := a.Pack()
	if err != nil {
		return "", err
	}
	reply, err := send(ctx, hostPort(at, e2e.RequestPort), packed)
	if err != nil {
		return "", err
	}
	answer, err := wire.OpenAuthReply(a, reply)
	switch {
	case err != nil:
		return "", err
	case answer.Accepted:
		m.answer = answer
		return "accepted", nil
	case answer.Ret == true:
		return "pending", nil
	case answer.Ret == false:
		return "rejected", nil
	}
	return "", fmt.Errorf("sign in: %v", answer.Ret)
}

// ask sends a sealed load on its own connection and opens the answer.
func (m *minion) ask(ctx context.Context, at *e2e.Master, load value.Map) (value.Raw, error) {
	return m.askBy(load, func(packed []byte) ([]byte, error) {
		return send(ctx, hostPort(at, e2e.RequestPort), packed)
	})
}

// askBy seals a load, sends it by send, and opens the answer.
func (m *minion) askBy(load value.Map, send func(packed []byte) ([]byte, error)) (value.Raw, error) {
	nonce, err := wire.NewNonce()
	if err != nil {
		return nil, err
	}
	crypt := wire.NewCrypticle(m.answer.Session)
	packed, err := m.sender.SealRequest(crypt, load, nonce, time.Now())
	if err != nil {
		return nil, err
	}
	reply, err := send(packed)
	if err != nil {
		return nil, err
	}
	return wire.OpenReply(crypt, reply, nonce)
}

// returned is the load of a return of a job that succeeded.
func (m *minion) returned(jid, fun string, val any) value.Map {
	return value.Map{{Key: "cmd", Value: "_return"}, {Key: "id", Value: m.id}, {Key: "jid", Value: jid},
		{Key: "fun", Value: fun}, {Key: "return", Value: val}, {Key: "retcode", Value: int64(0)},
		{Key: "success", Value: true}}
}

// comes signs in at a master until its key is pending there.
func (m *minion) comes(t testing.TB, at *e2e.Master) {
	t.Helper()
	e2e.Eventually(t, healed, m.id+" is pending on "+at.ID, func() error {
		word, err := m.signIn(within(t, 5*time.Second), at)
		if err != nil {
			return err
		}
		if word != "pending" {
			return fmt.Errorf("is %s", word)
		}
		if s := keyState(t, at, m.id); s != "minions_pre" {
			return fmt.Errorf("is in %q", s)
		}
		return nil
	})
}

// accepted is a minion that a master has accepted and that has signed in.
func accepted(t testing.TB, at *e2e.Master, id string) *minion {
	t.Helper()
	m := newMinion(t, id)
	m.comes(t, at)
	succeeds(t, at.Key(t, "-a", id, "-y"))
	if word, err := m.signIn(within(t, 5*time.Second), at); err != nil || word != "accepted" {
		t.Fatalf("%s signs in at %s: %s, %v", id, at.ID, word, err)
	}
	return m
}
