package auth_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/serve/auth"
	"clustermaster/test/logtest"
	"clustermaster/value"
)

// agreed keeps tokens in the state that masters replicate, without the others.
type agreed struct {
	mu    sync.Mutex // guards index
	index uint64
	s     *fsm.State
	now   func() time.Time
}

func newAgreed(now func() time.Time) *agreed {
	a := &agreed{s: fsm.New(), index: 1, now: now}
	a.s.Apply(1, &fsm.Found{
		Cluster: fsm.Cluster{UUID: strings.Repeat("a", 32), ClusterKey: "PEM", Partitions: 256},
		Member: fsm.Member{Node: "m1/1", ID: "m1", Incarnation: "1", Addr: "127.0.0.1:4520",
			SPKI: [32]byte{1}, Version: "test"},
		AES: "aes", Session: []byte("session"), At: time.Unix(1, 0),
	})
	return a
}

func (a *agreed) apply(c fsm.Command) fsm.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index++
	r, _ := a.s.Apply(a.index, c)
	return r
}

func (a *agreed) PutToken(_ context.Context, t auth.Token, most, mostPerOwner int) error {
	if r := a.apply(&fsm.PutToken{Token: fsm.Token(t), Max: most, MaxPerOwner: mostPerOwner,
		At: a.now()}); r.Refused != "" {
		return auth.ErrTokensFull
	}
	return nil
}

func (a *agreed) DropToken(_ context.Context, hash [32]byte) (bool, error) {
	return a.apply(&fsm.DropToken{Hash: hash, At: a.now()}).Changed, nil
}

func (a *agreed) Token(hash [32]byte) (auth.Token, bool) {
	t, ok := a.s.Token(hash)
	return auth.Token(t), ok
}

func (a *agreed) Tokens() int { return a.s.Tokens() }

// opened makes an Auth whose log is in said.
func opened(t *testing.T, o auth.Options, d auth.Deps) (a *auth.Auth, tokens *agreed,
	said *logtest.Buffer) {
	t.Helper()
	if d.Now == nil {
		d.Now = time.Now
	}
	said = new(logtest.Buffer)
	tokens = newAgreed(d.Now)
	d.Tokens, d.Log = tokens, slog.New(slog.NewTextHandler(said,
		&slog.HandlerOptions{Level: slog.LevelDebug}))
	a, err := auth.New(o, d)
	if err != nil {
		t.Fatal(err)
	}
	return a, tokens, said
}

func dict(pairs ...any) value.Map {
	var m value.Map
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}

func list(v ...any) []any { return v }

func creds(eauth, user, password string) value.Map {
	return dict("eauth", eauth, "username", user, "password", password)
}
