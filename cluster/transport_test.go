package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
)

// loopback is a stream layer of plain TCP.
type loopback struct{ net.Listener }

func (loopback) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(addr), timeout)
}

func newLoopback(t *testing.T) loopback {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return loopback{ln}
}

// follower answers a leader as raft does; every refuses-th request with entries as one whose disk
// is full: refused.
type follower struct {
	trans   *raft.NetworkTransport
	refuses int

	asked   int
	last    uint64 // the log's; it need keep no more
	refused atomic.Int64
	has     atomic.Uint64 // last, for the test
}

func (f *follower) serve(stop <-chan struct{}) {
	for {
		select {
		case rpc := <-f.trans.Consumer():
			switch r := rpc.Command.(type) {
			case *raft.RequestVoteRequest:
				rpc.Respond(&raft.RequestVoteResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: r.Term, Granted: true}, nil)
			case *raft.RequestPreVoteRequest:
				rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: r.Term, Granted: true}, nil)
			case *raft.AppendEntriesRequest:
				rpc.Respond(f.take(r), nil)
			default:
				rpc.Respond(nil, nil)
			}
		case <-stop:
			return
		}
	}
}

func (f *follower) take(r *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
	a := &raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: r.Term, LastLog: f.last}
	if len(r.Entries) == 0 {
		a.Success = r.PrevLogEntry <= f.last
		return a
	}
	f.asked++
	if r.PrevLogEntry > f.last || f.refuses > 0 && f.asked%f.refuses == 0 {
		f.refused.Add(1)
		return a
	}
	f.last = r.Entries[len(r.Entries)-1].Index
	f.has.Store(f.last)
	a.Success, a.LastLog = true, f.last
	return a
}

// A follower that can't take entries for a moment gets them later from the same leader, and the
// leader's end doesn't wait for it.
func TestFollowerThatRefusesIsNotGivenUp(t *testing.T) {
	t.Parallel()
	log := hclog.NewNullLogger()
	own := newLoopback(t)
	trans := newTransport(own, nil, steady{}, log)
	servers := []raft.Server{{ID: "leader", Address: raft.ServerAddress(own.Addr().String())}}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var followers []*follower
	for id, refuses := range map[raft.ServerID]int{"willing": 0, "refusing": 5} {
		layer := newLoopback(t)
		f := &follower{trans: raft.NewNetworkTransport(layer, 3, time.Second, nil),
			refuses: refuses}
		followers = append(followers, f)
		servers = append(servers, raft.Server{ID: id,
			Address: raft.ServerAddress(layer.Addr().String())})
		wg.Go(func() { f.serve(stop) })
		defer f.trans.Close()
	}
	defer wg.Wait()
	defer close(stop)

	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "leader", log
	store := raft.NewInmemStore()
	machine := newMachine(fsm.New(), newFeed(), func(err error) { t.Error(err) })
	r, err := raft.NewRaft(conf, machine, store, store, raft.NewInmemSnapshotStore(), trans)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
		t.Fatal(err)
	}
	noop, err := fsm.Encode(fsm.Noop{})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	var applied raft.ApplyFuture
	for n := 0; n < 3000; n++ {
		f := r.Apply(noop, time.Second)
		if n%16 != 0 { // the others ride along
			continue
		}
		if f.Error() != nil {
			n = 0
			time.Sleep(10 * time.Millisecond)
		}
		if time.Now().After(deadline) {
			t.Fatal("the leader gets nothing applied")
		}
		applied = f
	}
	for _, f := range followers {
		for f.has.Load() < applied.Index() {
			if time.Now().After(deadline) {
				t.Fatalf("a follower has %d of %d entries, %d refusals", f.has.Load(),
					applied.Index(), f.refused.Load())
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%d refusals", f.refused.Load())
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Shutdown().Error() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("raft doesn't end")
	}
}

// Heartbeats that come after the end of raft, on a connection that is still open, reach it no more:
// the log is closed by then.
func TestHeartbeatsEndWithTheTransport(t *testing.T) {
	t.Parallel()
	layer := newLoopback(t)
	r := startLone(t, layer, raft.NewInmemStore())
	peer := raft.NewNetworkTransport(newLoopback(t), 3, time.Second, nil)
	defer peer.Close()
	beat := func() (bool, error) {
		var answer raft.AppendEntriesResponse
		err := peer.AppendEntries("follower", raft.ServerAddress(layer.Addr().String()),
			&raft.AppendEntriesRequest{Term: 1, RPCHeader: fromLeader}, &answer)
		return answer.Success, err
	}
	if heard, err := beat(); err != nil || !heard {
		t.Fatalf("a heartbeat: %v, %v", heard, err)
	}
	r.end(t)
	if heard, err := beat(); err == nil || heard {
		t.Errorf("after the end: %v, %v", heard, err)
	}
}

// slowTerm is a stable store that writes a term again slowly.
type slowTerm struct{ raft.StableStore }

func (s slowTerm) SetUint64(key []byte, value uint64) error {
	if had, err := s.GetUint64(key); string(key) == "CurrentTerm" && err == nil && had == value {
		<-time.After(300 * time.Millisecond)
	}
	return s.StableStore.SetUint64(key, value)
}

// A late heartbeat of the former leader, which comes while a master is a candidate, does not set
// the term back that the master was elected for.
func TestALateHeartbeatDoesNotSetTheTermBack(t *testing.T) {
	t.Parallel()
	layer := newLoopback(t)
	addr := raft.ServerAddress(layer.Addr().String())
	other := &follower{trans: raft.NewNetworkTransport(newLoopback(t), 3, time.Minute, nil), refuses: 1 << 30}
	defer other.trans.Close()
	store := raft.NewInmemStore()
	trans := newTransport(layer, nil, steady{}, hclog.NewNullLogger())
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "follower", hclog.NewNullLogger()
	servers := raft.Configuration{Servers: []raft.Server{{ID: conf.LocalID, Address: addr},
		{ID: "leader", Address: other.trans.LocalAddr()}}}
	if err := raft.BootstrapCluster(conf, store, store, raft.NewInmemSnapshotStore(), trans, servers); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(conf, forgetful{}, store, slowTerm{store}, raft.NewInmemSnapshotStore(), trans)
	if err != nil {
		t.Fatal(err)
	}
	trans.own.Store(r)
	defer (&lone{Raft: r, trans: trans}).end(t)

	// It asks for a pre-vote; the heartbeat goes first, and the vote is granted meanwhile.
	former := raft.NewNetworkTransport(newLoopback(t), 3, time.Minute, nil)
	defer former.Close()
	asked := <-other.trans.Consumer()
	term := r.CurrentTerm()
	beaten := make(chan error, 1)
	go func() {
		var answer raft.AppendEntriesResponse
		beaten <- former.AppendEntries("follower", addr,
			&raft.AppendEntriesRequest{RPCHeader: fromLeader, Term: term}, &answer)
	}()
	go func() {
		<-time.After(100 * time.Millisecond)
		asked.Respond(&raft.RequestPreVoteResponse{RPCHeader: fromLeader, Term: term + 1, Granted: true}, nil)
	}()
	stop := make(chan struct{})
	defer close(stop)
	go other.serve(stop)
	for highest := term; ; {
		now := r.CurrentTerm()
		if now < highest {
			t.Fatalf("the term went from %d back to %d", highest, now)
		}
		highest = now
		select {
		case err := <-beaten:
			if err != nil {
				t.Error(err)
			}
			if now := r.CurrentTerm(); now < highest {
				t.Errorf("the term went from %d back to %d", highest, now)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// slowLog writes entries when it is told to.
type slowLog struct {
	raft.LogStore
	begun, goOn chan struct{}
}

func (l *slowLog) StoreLogs(entries []*raft.Log) error {
	l.begun <- struct{}{}
	<-l.goOn
	return l.LogStore.StoreLogs(entries)
}

// While a follower writes what the leader sent, it answers the leader's heartbeats, and no others.
func TestHeartbeatsAreAnsweredDuringASlowWrite(t *testing.T) {
	t.Parallel()
	layer := newLoopback(t)
	addr := raft.ServerAddress(layer.Addr().String())
	disk := &slowLog{raft.NewInmemStore(), make(chan struct{}), make(chan struct{})}
	r := startLone(t, layer, disk)
	defer r.end(t)
	leader := raft.NewNetworkTransport(newLoopback(t), 3, time.Minute, nil)
	defer leader.Close()
	send := func(term uint64, entries ...*raft.Log) (raft.AppendEntriesResponse, error) {
		var answer raft.AppendEntriesResponse
		err := leader.AppendEntries("follower", addr,
			&raft.AppendEntriesRequest{RPCHeader: fromLeader, Term: term, Entries: entries}, &answer)
		return answer, err
	}
	if answer, err := send(3); err != nil || !answer.Success {
		t.Fatalf("the first heartbeat: %+v, %v", answer, err)
	}
	written, newer := make(chan error, 1), make(chan error, 1)
	go func() {
		answer, err := send(3, &raft.Log{Index: 1, Term: 3, Type: raft.LogNoop})
		if err == nil && !answer.Success {
			err = fmt.Errorf("%+v", answer)
		}
		written <- err
	}()
	<-disk.begun
	go func() {
		_, err := send(4)
		newer <- err
	}()
	for range 3 {
		if answer, err := send(3); err != nil || !answer.Success {
			t.Errorf("a heartbeat during the write: %+v, %v", answer, err)
		}
	}
	if term := r.CurrentTerm(); term != 3 || len(written)+len(newer) > 0 {
		t.Errorf("during the write: term %d, answers %d, %d", term, len(written), len(newer))
	}
	close(disk.goOn)
	if err := <-written; err != nil {
		t.Errorf("the entries: %v", err)
	}
	if err := <-newer; err != nil || r.CurrentTerm() != 4 {
		t.Errorf("the heartbeat of a newer leader: %v, term %d", err, r.CurrentTerm())
	}
}

// forgetful is a state of nothing.
type forgetful struct{}

func (forgetful) Apply(*raft.Log) any                 { return nil }
func (forgetful) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("none") }
func (forgetful) Restore(r io.ReadCloser) error       { return r.Close() }

// A follower takes the entries after its snapshot again when the leader sends them again. It does
// not go back to an older one.
func TestEntriesAfterASnapshotComeTwice(t *testing.T) {
	t.Parallel()
	layer := newLoopback(t)
	addr := raft.ServerAddress(layer.Addr().String())
	r := startLone(t, layer, raft.NewInmemStore())
	defer r.end(t)
	leader := raft.NewNetworkTransport(newLoopback(t), 3, time.Minute, nil)
	defer leader.Close()
	var installed raft.InstallSnapshotResponse
	install := func(term, last uint64) error {
		return leader.InstallSnapshot("follower", addr, snapshotOf(term, last, 1), &installed, strings.NewReader("x"))
	}
	if err := install(2, 113); err != nil || !installed.Success {
		t.Fatalf("install the snapshot: %+v, %v", installed, err)
	}
	send := func(before, term, first, last uint64) bool {
		t.Helper()
		a := &raft.AppendEntriesRequest{RPCHeader: fromLeader, Term: 3, PrevLogEntry: before, PrevLogTerm: term}
		for i := first; i <= last; i++ {
			a.Entries = append(a.Entries, &raft.Log{Index: i, Term: 3, Type: raft.LogNoop})
		}
		var answer raft.AppendEntriesResponse
		if err := leader.AppendEntries("follower", addr, a, &answer); err != nil {
			t.Fatal(err)
		}
		return answer.Success
	}
	for _, tt := range []struct {
		name                      string
		before, term, first, last uint64
		want                      bool
	}{
		{"after the snapshot", 113, 2, 114, 116, true},
		{"again", 113, 2, 114, 116, true},
		{"again, and more", 113, 2, 114, 118, true},
		{"after the log", 118, 3, 119, 119, true},
		{"of another term before", 113, 1, 114, 116, false},
		{"after what is in the snapshot", 112, 2, 113, 116, false},
	} {
		if got := send(tt.before, tt.term, tt.first, tt.last); got != tt.want {
			t.Errorf("%s: taken %v, want %v", tt.name, got, tt.want)
		}
	}
	if last := r.LastIndex(); last != 119 {
		t.Errorf("the log ends with %d", last)
	}

	// An older snapshot is refused. A leader of an older term learns the new one.
	if err := install(3, 112); err == nil || !strings.Contains(err.Error(), "ends with entry 112") {
		t.Errorf("an older snapshot: %v", err)
	}
	if r.AppliedIndex() != 113 || !send(119, 3, 120, 120) {
		t.Errorf("after an older snapshot: %d are applied, or no more entries are taken", r.AppliedIndex())
	}
	if err := install(2, 112); err != nil || installed.Success || installed.Term != 3 {
		t.Errorf("from a former leader: %+v, %v", installed, err)
	}
	if err := install(3, 121); err != nil || !installed.Success || r.AppliedIndex() != 121 {
		t.Errorf("a newer snapshot: %+v, %v, %d are applied", installed, err, r.AppliedIndex())
	}
}

// steady is a disk that takes what is written, at once.
type steady struct{}

func (steady) hangs() error   { return nil }
func (steady) refusal() error { return nil }

// fullLog is a log on a disk that can be full.
type fullLog struct {
	raft.LogStore
	full atomic.Bool
}

func (l *fullLog) StoreLogs(entries []*raft.Log) error {
	if l.full.Load() {
		return syscall.ENOSPC
	}
	return l.LogStore.StoreLogs(entries)
}

// A follower whose disk is full answers an error, for which raft's leader sends the same again. It
// goes back in its log only if the follower lacks an entry, and for a newer term it resigns. After
// a new leader cut the end of its log, a follower that can't write yet keeps what it had.
func TestFollowerWhoseDiskIsFullSaysSo(t *testing.T) {
	t.Parallel()
	inner := &fullLog{LogStore: raft.NewInmemStore()}
	layer := newLoopback(t)
	addr := raft.ServerAddress(layer.Addr().String())
	r := startLone(t, layer, inner)
	defer r.end(t)
	leader := raft.NewNetworkTransport(newLoopback(t), 3, time.Minute, nil)
	defer leader.Close()
	send := func(term, before, beforeTerm, last, commit uint64) string {
		t.Helper()
		a := &raft.AppendEntriesRequest{RPCHeader: fromLeader, Term: term, PrevLogEntry: before,
			PrevLogTerm: beforeTerm, LeaderCommitIndex: commit}
		for i := before + 1; i <= last; i++ {
			a.Entries = append(a.Entries, &raft.Log{Index: i, Term: term, Type: raft.LogNoop})
		}
		var answer raft.AppendEntriesResponse
		switch err := leader.AppendEntries("follower", addr, a, &answer); {
		case err != nil && strings.Contains(err.Error(), syscall.ENOSPC.Error()):
			return "full"
		case err != nil:
			return err.Error()
		case answer.Term > term:
			return "resign"
		case !answer.Success:
			return "back"
		}
		return "taken"
	}
	for _, tt := range []struct {
		name                                   string
		full                                   bool
		term, before, beforeTerm, last, commit uint64
		want                                   string
		has                                    []uint64 // terms of the entries that raft reads
		stored                                 uint64   // the last entry on disk
	}{
		{"first", false, 1, 0, 0, 3, 1, "taken", []uint64{1, 1, 1}, 3},
		{"full", true, 1, 3, 1, 5, 1, "full", []uint64{1, 1, 1}, 3},
		{"full, and lacks an entry", true, 1, 4, 1, 5, 1, "back", []uint64{1, 1, 1}, 3},
		{"space again", false, 1, 3, 1, 5, 1, "taken", []uint64{1, 1, 1, 1, 1}, 5},
		{"full, from a new leader", true, 2, 3, 1, 4, 1, "full", []uint64{1, 1, 1, 1, 1}, 3},
		{"from the old one", true, 1, 5, 1, 6, 1, "resign", []uint64{1, 1, 1, 1, 1}, 3},
		{"full, cut further down", true, 3, 2, 1, 4, 1, "full", []uint64{1, 1, 1, 1, 1}, 2},
		{"space for one that has more of the old log", false, 4, 4, 1, 5, 1, "taken", []uint64{1, 1, 1, 1, 4}, 5},
		{"cut, with space", false, 5, 1, 1, 2, 1, "taken", []uint64{1, 5}, 2},
		{"on", false, 5, 2, 5, 4, 4, "taken", []uint64{1, 5, 5, 5}, 4},
		{"more", false, 5, 4, 5, 6, 4, "taken", []uint64{1, 5, 5, 5, 5, 5}, 6},
		{"full, and committed elsewhere", true, 6, 4, 5, 5, 5, "full", []uint64{1, 5, 5, 5, 5, 5}, 4},
		{"full still", true, 6, 4, 5, 5, 5, "full", []uint64{1, 5, 5, 5, 5, 5}, 4},
		{"with space", false, 6, 4, 5, 5, 5, "taken", []uint64{1, 5, 5, 5, 6}, 5},
	} {
		inner.full.Store(tt.full)
		if got := send(tt.term, tt.before, tt.beforeTerm, tt.last, tt.commit); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		var has []uint64
		for i := uint64(1); ; i++ {
			var entry raft.Log
			if r.log.GetLog(i, &entry) != nil {
				break
			}
			has = append(has, entry.Term)
		}
		stored, _ := inner.LastIndex()
		if !slices.Equal(has, tt.has) || stored != tt.stored || r.LastIndex() != uint64(len(tt.has)) {
			t.Errorf("%s: entries of terms %v, %d stored, raft counts %d; want %v, %d", tt.name, has, stored,
				r.LastIndex(), tt.has, tt.stored)
		}
	}
}

// zeros is endless.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// hanging is a disk that hangs until it is told otherwise.
type hanging struct {
	steady
	over atomic.Bool
}

func (h *hanging) hangs() error {
	if h.over.Load() {
		return nil
	}
	return errors.New("the disk hangs")
}

// What a leader sends while the disk of its follower hangs is refused, but for the first call. Each
// would keep its stream until the disk answers, which may take days.
func TestCallsDoNotWaitForAHangingDisk(t *testing.T) {
	t.Parallel()
	disk := &hanging{}
	layer := newLoopback(t)
	trans := newTransport(layer, nil, disk, hclog.NewNullLogger())
	defer trans.Close()
	addr := raft.ServerAddress(layer.Addr().String())
	leader := raft.NewNetworkTransport(newLoopback(t), 3, time.Minute, nil)
	defer leader.Close()
	send := func() error {
		var answer raft.AppendEntriesResponse
		return leader.AppendEntries("follower", addr, &raft.AppendEntriesRequest{Term: 1,
			RPCHeader: raft.RPCHeader{Addr: []byte("leader")}, Entries: []*raft.Log{{Index: 1, Term: 1}}}, &answer)
	}
	first := make(chan error, 1)
	go func() { first <- send() }()
	writing := <-trans.Consumer() // raft took it, and hangs in its write
	install := func() error {     // more than a socket holds
		const size = 16 << 20
		var answer raft.InstallSnapshotResponse
		return leader.InstallSnapshot("follower", addr, snapshotOf(1, 113, size), &answer,
			io.LimitReader(zeros{}, size))
	}
	for _, call := range []func() error{send, install, send} {
		if err := call(); err == nil || err.Error() != "the disk hangs" {
			t.Fatalf("while the disk hangs: %v", err)
		}
	}
	disk.over.Store(true)
	writing.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
	if err := <-first; err != nil {
		t.Errorf("the call that hung: %v", err)
	}
	go func() { first <- send() }()
	call := <-trans.Consumer()
	call.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
	if err := <-first; err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// dialled is a stream layer that reaches nobody, and remembers whom it was to reach.
type dialled struct {
	loopback
	mu    sync.Mutex
	asked []raft.ServerAddress
}

func (d *dialled) Dial(addr raft.ServerAddress, _ time.Duration) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, addr)
	return nil, errors.New("nobody is there")
}

// What raft sends to a server that was removed does not reach its successor at the same address, a
// machine with a new disk. Members hear of each other's addresses, not of their names.
func TestMessagesToARemovedServerReachNoOther(t *testing.T) {
	t.Parallel()
	state, pins := fsm.New(), NewPins()
	self := fsm.Member{ID: "m1", Incarnation: "1", Node: "m1/1", Addr: "10.0.0.1:4520", SPKI: [32]byte{1}}
	next := fsm.Member{ID: "m2", Incarnation: "2", Node: "m2/2", Addr: "10.0.0.2:4520", SPKI: [32]byte{2}}
	pins.open(state, self)
	apply(t, state, &fsm.Found{Cluster: fsm.Cluster{UUID: "u", Partitions: 1}, Member: self,
		AES: "a", Session: []byte("s")}, &fsm.PutMember{Member: next})
	layer := &dialled{loopback: newLoopback(t)}
	trans := newTransport(layer, pins, steady{}, hclog.NewNullLogger())
	defer trans.Close()
	for _, id := range []raft.ServerID{"m2/1", "m2/2"} {
		if err := trans.AppendEntries(id, "10.0.0.2:4520", &raft.AppendEntriesRequest{Term: 1},
			new(raft.AppendEntriesResponse)); err == nil {
			t.Errorf("a message to %s arrives", id)
		}
	}
	if want := []raft.ServerAddress{"m2/1", "m2/2"}; !slices.Equal(layer.asked, want) {
		t.Errorf("dialled %q, want %q", layer.asked, want)
	}
	for id, want := range map[raft.ServerID]string{"m1/1": "10.0.0.1:4520", "m2/2": "10.0.0.2:4520",
		"m2/1": "10.9.9.9:4520"} {
		if got := trans.EncodePeer(id, "10.9.9.9:4520"); string(got) != want {
			t.Errorf("%s is told as %s, want %s", id, got, want)
		}
	}
}
