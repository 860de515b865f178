package simminion

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	transport "clustermaster/transport/minion"
	"clustermaster/value"
	"clustermaster/wire"
)

type testLog struct{ t testing.TB }

func (w testLog) Write(b []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}

func logTo(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

var testKeys = sync.OnceValue(func() []*Key {
	keys := make([]*Key, 2)
	for i := range keys {
		k, err := NewKey(2048)
		if err != nil {
			panic(err)
		}
		keys[i] = k
	}
	return keys
})

var masterKey = sync.OnceValue(func() *wire.PrivateKey {
	k, err := wire.GeneratePrivateKey(2048)
	if err != nil {
		panic(err)
	}
	return k
})

// fakeMaster answers as a master does, from what wire offers to masters.
type fakeMaster struct {
	t    testing.TB
	pub  *transport.PubServer
	addr string // request port
	port int    // publish port

	mu       sync.Mutex
	aes      wire.Key
	sessions byte                   // epoch of the session keys
	answers  map[string][]any       // what _auth says before it accepts
	mute     map[string]int         // cmd to number of requests whose connection is cut
	events   []string               // tags
	commands []string               // cmd in order of arrival, "_auth" included
	returns  map[string][]value.Map // by jid
	pubs     map[string]*wire.PublicKey
	remotes  map[string]bool
	starting int // the most ids at one time that had signed in and not fired their start event
}

func newFakeMaster(t testing.TB) *fakeMaster {
	t.Helper()
	f := &fakeMaster{t: t, answers: map[string][]any{}, mute: map[string]int{},
		returns: map[string][]value.Map{},
		pubs:    map[string]*wire.PublicKey{}, remotes: map[string]bool{}}
	f.rotate()
	f.pub = transport.NewPubServer(transport.Limits{}, false, nil, nil)
	requests := f.serve(func(ctx context.Context, ln net.Listener) error {
		return transport.ServeRequests(ctx, ln, f, transport.Limits{}, nil, nil)
	})
	f.addr = requests.String()
	f.port = f.serve(f.pub.Serve).(*net.TCPAddr).Port
	return f
}

func (f *fakeMaster) serve(serve func(context.Context, net.Listener) error) net.Addr {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
	return ln.Addr()
}

func (f *fakeMaster) rotate() {
	key, err := wire.NewKey()
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.aes = key
}

func (f *fakeMaster) session(id string) wire.Key {
	return wire.DeriveSession([]byte{f.sessions}, id, sha256.Sum256(nil), 1)
}

func (f *fakeMaster) Handle(_ context.Context, r transport.Request) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, refusal := wire.ParseEnvelope(r.Payload)
	if refusal != nil {
		return refusal.Reply, nil
	}
	f.remotes[r.Remote.Addr().String()] = true
	if e.Enc == "clear" {
		f.commands = append(f.commands, e.Clear.String("cmd"))
		if f.cut(e.Clear.String("cmd")) {
			return nil, nil
		}
		return f.auth(e)
	}
	key := f.aes
	if e.Version > 2 {
		key = f.session(e.ID)
	}
	c := wire.NewCrypticle(key)
	packed, err := c.Open(e.Sealed)
	if err != nil {
		return wire.BadLoad("mac").Reply, nil
	}
	request, refusal := wire.ParseRequest(packed)
	if refusal != nil {
		return refusal.Reply, nil
	}
	load, err := request.Load.Map()
	if err != nil {
		return nil, err
	}
	f.commands = append(f.commands, request.Cmd)
	if f.cut(request.Cmd) {
		return nil, nil
	}
	switch request.Cmd {
	case "_pillar":
		return wire.PrivateReply(masterKey(), f.pubs[request.ID], e.EncAlgo, e.SigAlgo,
			request.Nonce, e.Version, "pillar",
			value.Map{{Key: "from", Value: "fake"}})
	case "_minion_event":
		f.events = append(f.events, load.String("tag"))
	case "_return":
		f.returns[load.String("jid")] = append(f.returns[load.String("jid")], load)
	}
	return wire.SealedReply(c, nil, request.Nonce)
}

func (f *fakeMaster) cut(cmd string) bool {
	if f.mute[cmd] == 0 {
		return false
	}
	f.mute[cmd]--
	return true
}

func (f *fakeMaster) auth(e wire.Envelope) ([]byte, error) {
	id := e.Clear.String("id")
	nonce := e.Clear.String("nonce")
	if queue := f.answers[id]; len(queue) > 0 {
		f.answers[id] = queue[1:]
		if queue[0] == "bad load" {
			return wire.ClearReply("bad load")
		}
		return wire.SignedAuth(masterKey(), e.SigAlgo,
			value.Map{{Key: "ret", Value: queue[0]}, {Key: "nonce", Value: nonce}})
	}
	pub, err := wire.ParsePublicKey(e.Clear.String("pub"))
	if err != nil {
		return nil, err
	}
	f.pubs[id] = pub
	starting := len(f.pubs)
	for _, tag := range f.events {
		if strings.HasSuffix(tag, "/start") {
			starting--
		}
	}
	f.starting = max(f.starting, starting)
	aes, err1 := pub.Encrypt(e.EncAlgo, []byte(f.aes.String()))
	session, err2 := pub.Encrypt(e.EncAlgo, []byte(f.session(id).String()))
	sig, err3 := wire.KeySignature(masterKey(), f.aes)
	load := value.Map{{Key: "enc", Value: "pub"},
		{Key: "pub_key", Value: masterKey().Public().Text()},
		{Key: "publish_port", Value: f.port}, {Key: "aes", Value: aes},
		{Key: "session", Value: session}, {Key: "sig", Value: sig}, {Key: "nonce", Value: nonce}}
	if sealed := e.Clear.Bytes("token"); sealed != nil {
		token, err := masterKey().Decrypt(e.EncAlgo, sealed)
		if err != nil {
			return nil, err
		}
		back, err := pub.Encrypt(e.EncAlgo, token)
		if err != nil {
			return nil, err
		}
		load = load.Set("token", back)
	}
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	return wire.SignedAuth(masterKey(), e.SigAlgo, load)
}

// publish sends a job and returns its jid.
func (f *fakeMaster) publish(tgtType string, tgt any, fun any, args ...any) string {
	f.t.Helper()
	if args == nil {
		args = []any{}
	}
	f.mu.Lock()
	jid := wire.JID(time.Now())
	for f.returns[jid] != nil {
		jid = wire.JID(time.Now())
	}
	f.returns[jid] = []value.Map{}
	f.mu.Unlock()
	f.again(jid, tgtType, tgt, fun, args)
	return jid
}

func (f *fakeMaster) again(jid, tgtType string, tgt, fun any, args []any) {
	f.t.Helper()
	f.mu.Lock()
	aes := f.aes
	f.mu.Unlock()
	payload, err := wire.Publication(wire.NewCrypticle(aes), masterKey(), wire.SigSHA1, value.Map{
		{Key: "fun", Value: fun}, {Key: "arg", Value: args}, {Key: "tgt", Value: tgt},
		{Key: "jid", Value: jid},
		{Key: "ret", Value: ""}, {Key: "tgt_type", Value: tgtType}, {Key: "user", Value: "root"}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.pub.Publish(transport.Publication{Payload: payload, JID: jid})
}

// returned waits for n returns of a job and gives them by id.
func (f *fakeMaster) returned(jid string, n int) map[string]value.Map {
	f.t.Helper()
	all := map[string]value.Map{}
	eventually(f.t, fmt.Sprintf("%d returns of %s", n, jid), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, load := range f.returns[jid] {
			all[load.String("id")] = load
		}
		return len(all) >= n
	})
	return all
}

func (f *fakeMaster) count(cmd string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.commands {
		if c == cmd {
			n++
		}
	}
	return n
}

func (f *fakeMaster) seen() (commands, events []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.commands), slices.Clone(f.events)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// fast are a minion's settings for tests.
func fast(t testing.TB, f *fakeMaster, id string) Config {
	return Config{ID: id, Key: testKeys()[0], Master: f.addr, Log: logTo(t),
		AcceptanceWait: 20 * time.Millisecond, AuthTimeout: 10 * time.Second,
		RequestTimeout:   10 * time.Second,
		ReturnRetryTimer: 10 * time.Millisecond, ReconDefault: 10 * time.Millisecond,
		ReconMax: 20 * time.Millisecond}
}

// start runs a minion until the test ends.
func start(t testing.TB, cfg Config) (*Minion, func() error) {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { stop() })
	return m, stop
}

func ready(t testing.TB, m *Minion) {
	t.Helper()
	select {
	case <-m.Ready():
	case <-time.After(20 * time.Second):
		t.Fatalf("minion %s does not get ready: %+v", m.ID(), m.Counts())
	}
}
