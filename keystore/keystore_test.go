package keystore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
	"clustermaster/keystore"
	"clustermaster/wire"
)

// group is a key store's node without Raft: a state, and switches for what can go wrong.
type group struct {
	mu       sync.Mutex // guards all below
	state    *fsm.State
	index    uint64
	writes   int
	largest  int // bytes of a command
	reads    int
	quorum   bool
	behind   []fsm.Command // what other masters did and this one hears with the next read index
	silent   []string      // members that do not confirm
	last     int           // the write after which the quorum is lost; 0: none
	lost     int           // the write whose answer is lost; 0: none
	answer   fsm.Result    // of the write whose answer was lost
	never    bool          // what became of that write does not come out
	done     func()        // called after each write
	confirms func(context.Context)
	followed func(uint64, fsm.Change)
}

func newGroup(t testing.TB) *group {
	t.Helper()
	g := &group{state: fsm.New(), quorum: true}
	g.found()
	return g
}

func (g *group) found() {
	g.apply(&fsm.Found{
		Cluster: fsm.Cluster{UUID: "u", Partitions: 256},
		Member:  fsm.Member{Node: fsm.NodeName("m1", "1"), ID: "m1", Incarnation: "1"},
		AES:     "a", Session: []byte("s"), At: time.Now(),
	})
}

func neverFounding() bool { return false }

func (g *group) apply(c fsm.Command) fsm.Result {
	g.index++
	r, change := g.state.Apply(g.index, c)
	if g.followed != nil && r.Changed {
		g.followed(g.index, change)
	}
	return r
}

func (g *group) State() *fsm.State { return g.state }

func (g *group) catchUp() {
	for _, c := range g.behind {
		g.apply(c)
	}
	g.behind = nil
}

func (g *group) Propose(_ context.Context, c fsm.Command) (fsm.Result, uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.quorum {
		return fsm.Result{}, 0, &cluster.NoQuorumError{}
	}
	g.catchUp()
	g.writes++
	entry, err := fsm.Encode(c)
	if err != nil {
		return fsm.Result{}, 0, err
	}
	g.largest = max(g.largest, len(entry))
	r := g.apply(c)
	g.quorum = g.writes != g.last
	if g.done != nil {
		g.done()
	}
	if g.writes == g.lost {
		g.answer = r
		return fsm.Result{}, 0, errUnknown
	}
	return r, g.index, nil
}

var errUnknown = errors.New("it is not known whether this was done")

func (g *group) Settle(_ context.Context, err error) (fsm.Result, uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !errors.Is(err, errUnknown) || g.never {
		return fsm.Result{}, 0, err
	}
	return g.answer, g.index, nil
}

func (g *group) stageAES(context.Context) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.quorum {
		return 0, &cluster.NoQuorumError{}
	}
	r := g.apply(&fsm.StageAES{Key: fmt.Sprint("key ", g.index), At: time.Now()})
	return r.Epoch, nil
}

func (g *group) activateAES(_ context.Context, epoch uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.quorum {
		return &cluster.NoQuorumError{}
	}
	if r := g.apply(&fsm.ActivateAES{Epoch: epoch, At: time.Now()}); r.Refused != "" {
		return &cluster.RefusedError{Reason: r.Refused}
	}
	return nil
}

func (g *group) ReadIndex(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reads++
	if !g.quorum {
		return &cluster.NoQuorumError{}
	}
	g.catchUp()
	return nil
}

func (g *group) ConfirmEverywhere(ctx context.Context, _ uint64) []string {
	if g.confirms != nil {
		g.confirms(ctx)
	}
	return g.silent
}

var pems = sync.OnceValue(func() []string {
	var out []string
	for range 2 {
		k, err := wire.GeneratePrivateKey(2048)
		if err != nil {
			panic(err)
		}
		out = append(out, k.Public().Text())
	}
	return out
})

func store(t testing.TB, n keystore.Node) *keystore.Store {
	t.Helper()
	s, err := keystore.New(n, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOffer(t *testing.T) {
	t.Parallel()
	a, b := pems()[0], pems()[1]
	have := func(state fsm.KeyState, pub string) fsm.Command {
		return &fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: state, Pub: pub}},
			At: time.Now()}
	}
	denied := func(n int) (list []fsm.Command) {
		for i := range n {
			list = append(list, have(fsm.KeyDenied, fmt.Sprint(i)))
		}
		return list
	}
	tests := []struct {
		name   string
		have   []fsm.Command
		behind []fsm.Command
		cut    bool // no quorum
		pub    string
		policy keystore.Policy
		act    string
		result bool
		ret    any
		key    bool
		writes int
		reads  int
	}{
		{name: "new", pub: a, act: "pend", result: true, ret: true, writes: 1, reads: 1},
		{name: "new, not a key", pub: "nonsense", act: "pend", result: true, ret: true, writes: 1,
			reads: 1},
		{name: "new, no quorum", cut: true, pub: a, act: "pend", result: true, ret: true, reads: 1},
		{name: "new, autosign", pub: a, policy: keystore.Policy{Auto: keystore.AutoAccept},
			act: "accept", result: true, ret: true, key: true, writes: 1, reads: 1},
		{name: "new, autosign, not a key", pub: "nonsense",
			policy: keystore.Policy{Auto: keystore.AutoAccept}, act: "error", ret: false, writes: 1,
			reads: 1},
		{name: "new, autoreject", pub: a, policy: keystore.Policy{Auto: keystore.AutoReject},
			act: "reject", ret: false, writes: 1, reads: 1},
		{name: "new, full", have: []fsm.Command{&fsm.OfferKey{ID: "other", Pub: "x",
			Source: "192.0.2.1", At: time.Now()}}, pub: a, policy: keystore.Policy{MaxPending: 1},
			act: "full", ret: "full"},
		{name: "new, full, no quorum", have: []fsm.Command{&fsm.OfferKey{ID: "other", Pub: "x",
			Source: "192.0.2.1", At: time.Now()}}, cut: true, pub: a,
			policy: keystore.Policy{MaxPending: 1}, act: "full", ret: "full"},
		{name: "new, full, autoreject", have: []fsm.Command{&fsm.OfferKey{ID: "other", Pub: "x",
			Source: "192.0.2.1", At: time.Now()}}, pub: a,
			policy: keystore.Policy{MaxPending: 1, Auto: keystore.AutoReject}, act: "full",
			ret: "full"},
		{name: "new, full, autosign", have: []fsm.Command{&fsm.OfferKey{ID: "other", Pub: "x",
			Source: "192.0.2.1", At: time.Now()}}, pub: a,
			policy: keystore.Policy{MaxPending: 1, Auto: keystore.AutoAccept}, act: "accept",
			result: true, ret: true, key: true, writes: 1, reads: 1},
		{name: "new, full of its source",
			have: []fsm.Command{&fsm.OfferKey{ID: "other", Pub: "x", Source: "192.0.2.1",
				At: time.Now()}}, pub: a, policy: keystore.Policy{MaxPending: 9, MaxPerSource: 1,
				Source: "192.0.2.1"}, act: "full", ret: "full"},
		{name: "new, full of another source",
			have: []fsm.Command{&fsm.OfferKey{ID: "other", Pub: "x", Source: "192.0.2.1",
				At: time.Now()}}, pub: a, policy: keystore.Policy{MaxPending: 9, MaxPerSource: 1,
				Source: "192.0.2.2"}, act: "pend", result: true, ret: true, writes: 1, reads: 1},
		{name: "pending retry, full", have: []fsm.Command{have(fsm.KeyPending, a),
			&fsm.OfferKey{ID: "other", Pub: "x", Source: "192.0.2.1", At: time.Now()}}, pub: a,
			policy: keystore.Policy{MaxPending: 1}, act: "pend", result: true, ret: true},
		{name: "accepted, other key, denied ones full",
			have: append([]fsm.Command{have(fsm.KeyAccepted, a)}, have(fsm.KeyDenied, "x")), pub: b,
			policy: keystore.Policy{MaxPending: 1}, act: "denied", ret: false, reads: 1},
		{name: "accepted, other key, denied ones of the id full",
			have: append([]fsm.Command{have(fsm.KeyAccepted, a)}, denied(8)...), pub: b,
			act: "denied", ret: false, reads: 1},
		{name: "pending, other key, denied ones of the id full",
			have: append([]fsm.Command{have(fsm.KeyPending, a)}, denied(8)...), pub: b,
			act: "denied", ret: false, reads: 1},
		{name: "pending retry", have: []fsm.Command{have(fsm.KeyPending, a)}, pub: a, act: "pend",
			result: true, ret: true},
		{name: "pending, other key", have: []fsm.Command{have(fsm.KeyPending, a)}, pub: b,
			act: "denied", ret: false, writes: 1, reads: 1},
		{name: "pending, autosign", have: []fsm.Command{have(fsm.KeyPending, a)}, pub: a,
			policy: keystore.Policy{Auto: keystore.AutoAccept}, act: "accept", result: true,
			ret: true, key: true, writes: 1, reads: 1},
		{name: "accepted", have: []fsm.Command{have(fsm.KeyAccepted, a)}, pub: a, act: "accept",
			result: true, ret: true, key: true},
		{name: "accepted, no quorum", have: []fsm.Command{have(fsm.KeyAccepted, a)}, cut: true,
			pub: a, act: "accept", result: true, ret: true, key: true},
		{name: "accepted text that is no key",
			have: []fsm.Command{have(fsm.KeyAccepted, "nonsense")}, pub: "nonsense", act: "error",
			ret: false, reads: 1},
		{name: "accepted, other key", have: []fsm.Command{have(fsm.KeyAccepted, a)}, pub: b,
			act: "denied", ret: false, writes: 1, reads: 1},
		{name: "accepted, other key, no quorum", have: []fsm.Command{have(fsm.KeyAccepted, a)},
			cut: true, pub: b, act: "pend", result: true, ret: true, reads: 1},
		{name: "accepted, other key, denied before",
			have: []fsm.Command{have(fsm.KeyAccepted, a), have(fsm.KeyDenied, b)}, pub: b,
			act: "denied", ret: false, reads: 1},
		{name: "accepted, other key, but deleted elsewhere",
			have: []fsm.Command{have(fsm.KeyAccepted, a)},
			behind: []fsm.Command{&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"},
				From: fsm.StateSet(fsm.KeyAccepted)}},
			pub: b, act: "pend", result: true, ret: true, writes: 1, reads: 1},
		{name: "rejected", have: []fsm.Command{have(fsm.KeyRejected, a)}, pub: a, act: "reject",
			ret: false, reads: 1},
		{name: "rejected, no quorum", have: []fsm.Command{have(fsm.KeyRejected, a)}, cut: true,
			pub: a, act: "pend", result: true, ret: true, reads: 1},
		{name: "rejected here, accepted elsewhere", have: []fsm.Command{have(fsm.KeyRejected, a)},
			behind: []fsm.Command{&fsm.ChangeKeys{Action: fsm.AcceptKeys, IDs: []string{"web1"},
				From: fsm.StateSet(fsm.KeyRejected)}},
			pub: a, act: "accept", result: true, ret: true, key: true, reads: 1},
		{name: "open mode, changed key", have: []fsm.Command{have(fsm.KeyAccepted, a)}, pub: b,
			policy: keystore.Policy{Open: true}, act: "accept", result: true, ret: true, key: true,
			writes: 1, reads: 1},
		{name: "open mode, rejected", have: []fsm.Command{have(fsm.KeyRejected, a)}, pub: a,
			policy: keystore.Policy{Open: true}, act: "accept", result: true, ret: true, key: true,
			writes: 1, reads: 1},
		{name: "open mode, empty", policy: keystore.Policy{Open: true}, act: "error", ret: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			for _, c := range tt.have {
				g.apply(c)
			}
			g.behind, g.quorum = tt.behind, !tt.cut
			before, _ := g.state.Keys()
			o, err := store(t, g).Offer(t.Context(), "web1", tt.pub, tt.policy)
			if err != nil {
				t.Fatal(err)
			}
			if o.Act != tt.act || o.Result != tt.result || o.Ret != tt.ret ||
				(o.Key != nil) != tt.key {
				t.Errorf("got %+v, want %s %v %v key %v", o, tt.act, tt.result, tt.ret, tt.key)
			}
			if g.writes != tt.writes || g.reads != tt.reads {
				t.Errorf("%d writes and %d reads of the leader, want %d and %d", g.writes, g.reads,
					tt.writes, tt.reads)
			}
			if after, _ := g.state.Keys(); tt.cut && fmt.Sprint(after) != fmt.Sprint(before) {
				t.Error("stored something without a quorum")
			}
		})
	}
}

func TestAcceptedIsParsedOnceAndNeverStale(t *testing.T) {
	g := newGroup(t)
	s := store(t, g)
	a, b := pems()[0], pems()[1]
	g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: fsm.KeyAccepted, Pub: a}}})
	k, ok := s.Accepted("web1")
	if !ok || k.Pub.Text() != a || k.Index != g.index {
		t.Fatalf("got %+v %v", k, ok)
	}
	if again, _ := s.Accepted("web1"); again != k {
		t.Error("parsed again")
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := s.Accepted("web1"); !ok {
			t.Fatal("gone")
		}
		_ = s.AcceptedIDs()
	}); n != 0 {
		t.Errorf("%v allocations a look-up", n)
	}
	g.apply(&fsm.OfferKey{ID: "web1", Pub: b, Open: true})
	if k, _ := s.Accepted("web1"); k.Pub.Text() != b {
		t.Error("the replaced key is still used")
	}
	g.apply(&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"},
		From: fsm.StateSet(fsm.KeyAccepted)})
	if _, ok := s.Accepted("web1"); ok {
		t.Error("the deleted key is still used")
	}
	if ids := s.AcceptedIDs(); len(ids) != 0 {
		t.Errorf("accepted: %v", ids)
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	s := store(t, g)
	g.apply(&fsm.ImportKeys{Keys: []fsm.Key{
		{ID: "a", State: fsm.KeyPending, Pub: pems()[0]},
		{ID: "bad", State: fsm.KeyPending, Pub: "nonsense"},
		{ID: "d", State: fsm.KeyDenied, Pub: pems()[1]},
		{ID: "a", State: fsm.KeyDenied, Pub: pems()[1]},
	}})
	changed, index, err := s.Change(t.Context(), keystore.AcceptKeys, []string{"a", "bad", "d"})
	var w *keystore.Warning
	if !errors.As(err, &w) || len(w.NotKeys) != 1 || w.NotKeys[0] != "bad" ||
		len(w.Unconfirmed) != 0 {
		t.Errorf("warning: %v", err)
	}
	if len(changed) != 1 || changed[0].ID != "a" || changed[0].From != keystore.Pending ||
		changed[0].State != keystore.Accepted || index != g.index {
		t.Errorf("got %+v at %d", changed, index)
	}
	g.silent = []string{"m2"}
	changed, _, err = s.Change(t.Context(), keystore.DeleteKeys, []string{"a"})
	if !errors.As(err, &w) || len(w.Unconfirmed) != 1 ||
		!strings.Contains(err.Error(), "master m2 did not confirm") {
		t.Errorf("warning: %v", err)
	}
	if len(changed) != 2 || changed[0].From != keystore.Accepted ||
		changed[1].From != keystore.Denied {
		t.Errorf("deleted: %+v", changed)
	}
	g.silent = nil
	changed, _, err = s.Change(t.Context(), keystore.RejectKeys, []string{"bad"})
	if err != nil || len(changed) != 1 {
		t.Errorf("rejected: %+v %v", changed, err)
	}
	if changed, _, err := s.Change(t.Context(), keystore.Action(99),
		[]string{"bad"}); err == nil || len(changed) > 0 ||
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("what the state refuses: %+v %v", changed, err)
	}
	g.quorum = false
	if _, _, err := s.Change(t.Context(), keystore.AcceptKeys, []string{"bad"}, keystore.Rejected,
		keystore.Denied); !errors.As(err, &w) || len(w.NotKeys) != 1 || len(w.Unconfirmed) != 0 {
		t.Errorf("what is no key needs no quorum: %v", err)
	}
	if _, _, err := s.Change(t.Context(), keystore.DeleteKeys, []string{"bad"}); !errors.Is(err,
		cluster.ErrNoQuorum) {
		t.Errorf("no quorum: %v", err)
	}
	if l := s.List(); len(l[keystore.Rejected]) != 1 || len(l[keystore.Denied]) != 1 ||
		len(l) != 4 {
		t.Errorf("list: %v", l)
	}
}

// TestCommandsAreSmall: lists of keys travel in parts, and nothing of them is lost.
func TestCommandsAreSmall(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	s := store(t, g)
	const n = 3000
	keys, ids := make([]keystore.Key, n), make([]string, n)
	for i := range keys {
		ids[i] = fmt.Sprintf("%0250d", i)
		keys[i] = keystore.Key{ID: ids[i], State: keystore.Pending, Pub: pems()[0]}
	}
	if taken, err := s.Import(t.Context(), keys); err != nil || taken != n {
		t.Errorf("imported %d, %v", taken, err)
	}
	for _, action := range []keystore.Action{keystore.AcceptKeys, keystore.DeleteKeys} {
		if changed, _, err := s.Change(t.Context(), action, ids, keystore.Pending,
			keystore.Accepted); err != nil || len(changed) != n {
			t.Errorf("action %d: %d changed, %v", action, len(changed), err)
		}
	}
	if g.largest > 132<<10 {
		t.Errorf("a command has %d bytes", g.largest)
	}
}

func TestExportFollowsAndTakesIn(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	s := store(t, g)
	dir := t.TempDir()
	open := func() *keystore.Exporter {
		e, err := keystore.NewExporter(s, dir, neverFounding, nil)
		if err != nil {
			t.Fatal(err)
		}
		g.followed = e.Follow
		e.Follow(g.index, fsm.Change{Restored: true})
		return e
	}
	e := open()
	files := func() string {
		keys, err := keystore.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, k := range keys {
			out = append(out, k.State.String()+"/"+k.ID)
		}
		return strings.Join(out, " ")
	}
	want := func(what, list string) {
		t.Helper()
		if got := files(); got != list {
			t.Errorf("%s: got %q, want %q", what, got, list)
		}
	}
	ctx := t.Context()
	if _, err := s.Offer(ctx, "web1", pems()[0], keystore.Policy{}); err != nil {
		t.Fatal(err)
	}
	want("pending", "minions_pre/web1")
	if _, _, err := s.Change(ctx, keystore.AcceptKeys, []string{"web1"}); err != nil {
		t.Fatal(err)
	}
	want("accepted", "minions/web1")
	if b, err := os.ReadFile(filepath.Join(dir, "minions", "web1")); err != nil ||
		string(b) != pems()[0] {
		t.Errorf("content: %q %v", b, err)
	}
	if e.Index() != g.index {
		t.Errorf("index %d, want %d", e.Index(), g.index)
	}
	// preseeded
	if err := os.WriteFile(filepath.Join(dir, "minions", "seed"), []byte(pems()[1]+"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if n, err := e.TakeIn(ctx); n != 1 || err != nil {
		t.Errorf("taken in: %d %v", n, err)
	}
	if k, ok := s.Accepted("seed"); !ok || k.Pub == nil {
		t.Error("the preseeded key is not accepted")
	}
	if n, err := e.TakeIn(ctx); n != 0 || err != nil {
		t.Errorf("taken in again: %d %v", n, err)
	}
	// Looks at an unchanged folder find what comes into it later, also a file in pieces.
	folder := filepath.Join(dir, "minions")
	for i, text := range []string{"", pems()[1][:40], pems()[1]} {
		old := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(folder, old, old); err != nil {
			t.Fatal(err)
		}
		want := 0
		if strings.Contains(text, "-----END") {
			want = 1
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(folder, "later"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for look := range 2 {
			n, err := e.TakeInChanged(ctx)
			if n != want || err != nil {
				t.Errorf("%d bytes, look %d: taken in: %d, %v; want %d", len(text), look, n, err, want)
			}
			want = 0
		}
	}
	if _, _, err := s.Change(ctx, keystore.DeleteKeys, []string{"later"}); err != nil {
		t.Fatal(err)
	}
	// deleted while this master is down: the file is no preseeded key
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	g.followed = nil
	g.apply(&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"},
		From: fsm.StateSet(fsm.KeyAccepted)})
	want("down", "minions/seed minions/web1")
	e = open()
	defer e.Close()
	want("up again", "minions/seed")
	if n, _ := e.TakeIn(ctx); n != 0 {
		t.Error("a deleted key came back from its file")
	}
	if _, _, err := s.Change(ctx, keystore.DeleteKeys, []string{"seed"}); err != nil {
		t.Fatal(err)
	}
	want("empty", "")
	if n, _ := e.TakeIn(ctx); n != 0 {
		t.Error("a deleted preseeded key came back")
	}
}

// TestOnThreeMasters runs the store on real nodes: accepted once is accepted everywhere before the
// change returns.
func TestOnThreeMasters(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	var stores []*keystore.Store
	for _, n := range c.Nodes {
		stores = append(stores, store(t, n))
	}
	for i := range 6 {
		id := fmt.Sprintf("web%d", i)
		o, err := stores[i%3].Offer(t.Context(), id, pems()[0], keystore.Policy{})
		if err != nil || o.Act != "pend" {
			t.Fatalf("%+v %v", o, err)
		}
		if err := stores[(i+1)%3].Fresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if k, ok := stores[(i+1)%3].Key(id); !ok || k.State != keystore.Pending {
			t.Errorf("%s on another master: %+v", id, k)
		}
		if changed, _, err := stores[(i+2)%3].Change(t.Context(), keystore.AcceptKeys,
			[]string{id}); err != nil || len(changed) != 1 {
			t.Fatalf("%v %v", changed, err)
		}
		for j, s := range stores {
			if o, err := s.Offer(t.Context(), id, pems()[0], keystore.Policy{}); err != nil ||
				o.Act != "accept" || o.Key == nil {
				t.Errorf("%s on master %d: %+v %v", id, j, o, err)
			}
		}
	}
	// The minority says pending to a stranger, serves known minions, and changes nothing.
	cut := c.Follower()
	c.Isolate(cut)
	c.Wait("cut off", func() error {
		if cut.Ready() {
			return errors.New("ready")
		}
		return nil
	})
	s := store(t, cut)
	if o, err := s.Offer(t.Context(), "stranger", pems()[1], keystore.Policy{}); err != nil ||
		o.Act != "pend" {
		t.Errorf("stranger: %+v %v", o, err)
	}
	if o, err := s.Offer(t.Context(), "web0", pems()[0], keystore.Policy{}); err != nil ||
		o.Act != "accept" {
		t.Errorf("known minion: %+v %v", o, err)
	}
	if o, err := s.Offer(t.Context(), "web0", pems()[1], keystore.Policy{}); err != nil ||
		o.Act != "pend" {
		t.Errorf("another key: %+v %v", o, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, _, err := s.Change(ctx, keystore.DeleteKeys, []string{"web0"}); !errors.Is(err,
		cluster.ErrNoQuorum) {
		t.Errorf("change in the minority: %v", err)
	}
	c.Heal()
	c.WaitReady()
	c.WaitAll("no stranger", func(n *clustertest.Node) error {
		if _, ok := n.State().Key("stranger"); ok {
			return errors.New("stored")
		}
		return nil
	})
}

func BenchmarkAccepted(b *testing.B) {
	g := newGroup(b)
	s := store(b, g)
	g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: fsm.KeyAccepted, Pub: pems()[0]}}})
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, ok := s.Accepted("web1"); !ok {
				b.Error("gone")
			}
		}
	})
}
