package cluster

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"clustermaster/test/knownbug"
)

// lookForHang is the time between two looks at the disk while raft answers a call.
const lookForHang = time.Second

// newTransport makes raft's transport to its peers.
//
// It does not pipeline requests: raft 1.8.0 stops reading a pipeline's answers after one that
// refuses, but may write two more requests, and the second of those waits forever for a reader. The
// follower would get no entries while this leader leads, and closing the node would also wait.
// Without pipelining two requests don't overlap; entries that come meanwhile travel together in the
// next one.
//
// If pins is not nil, it gives streams the names of members to dial, not addresses.
func newTransport(streams raft.StreamLayer, pins *Pins, disk logDisk, log hclog.Logger,
) *transport {
	inFlight := 1
	if knownbug.Is(knownbug.Pipelined) {
		inFlight = 2
	}
	conf := &raft.NetworkTransportConfig{Stream: limitedStreams{streams}, MaxPool: 3,
		MaxRPCsInFlight: inFlight, Timeout: raftTimeout, Logger: log}
	if pins != nil {
		conf.ServerAddressProvider = names{}
	}
	t := &transport{pins: pins, disk: disk, log: log, ended: make(chan struct{}), calls: make(chan raft.RPC),
		beats: make(chan raft.RPC), NetworkTransport: raft.NewNetworkTransportWithConfig(conf)}
	t.passing.Go(t.pass)
	return t
}

// logDisk is what the transport asks the disk of raft's log.
type logDisk interface {
	// hangs returns an error while the disk hangs: the transport sends no heartbeats and no
	// entries.
	hangs() error
	// refusal returns the error of a write since it was last called; nil: none failed.
	refusal() error
}

// names implements raft.ServerAddressProvider: raft's id of a server is the name of its node.
type names struct{}

func (names) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

// transport corrects raft 1.8.0 in seven ways.
//
// It sends to a server what is meant for that server. Raft sends to an address, and goes on for a
// while after the server was removed. The address in its configuration may be from before a move,
// or another member is there by now: the same machine with a new disk. That one would go back to an
// older snapshot than its own, and end when it misses the entries after that.
//
// It keeps heartbeats from changing raft's term or office beside its main loop. Raft answers them
// there at any time. One that overlapped with an election set the term back: a master that had just
// been elected by order led on in the term before, which had another leader. And one that came
// after the main loop had ended, with a later term, ended the process, because the log was closed.
//
// It lets a follower take entries that follow its snapshot. Raft looks for the entry before them in
// its log only, where there is none if the log begins after the snapshot. So a follower that got a
// snapshot and the next entries refused these if the leader sent them again. The leader went back,
// sent the snapshot again, and so on until its next snapshot: the follower never became ready
// (github.com/hashicorp/raft, issue 205).
//
// It lets a follower whose disk refuses entries say so. Raft answers as if it lacked the entry
// before them, and the leader goes back by one. A follower whose disk is full for days would be
// sent an older snapshot than its own, and end when it misses the entries after that.
//
// It refuses a snapshot that is older than the state, which raft would go back to. A leader sends
// one if it was put back to an older disk, or if raft is wrong about the follower.
//
// It ends a request that stops half-way (limitedStream), because raft reads a snapshot in its main
// loop.
//
// It stops the heartbeats of a leader whose disk hangs, so that the others elect another one. Raft
// writes its log in its main loop, and sends heartbeats beside it: such a leader would stay in
// office, and nothing could be changed before its disk comes back.
type transport struct {
	*raft.NetworkTransport
	pins *Pins
	disk logDisk
	log  hclog.Logger

	end   sync.Once     // closes ended
	ended chan struct{} // closed at the end

	own     atomic.Pointer[raft.Raft] // which uses this transport; nil before it runs
	calls   chan raft.RPC             // to own, one at a time
	beats   chan raft.RPC             // heartbeats, to pass
	waiting []raft.RPC                // heartbeats that came while own answered a call; of pass
	beside  func(raft.RPC)            // raft's answer to a heartbeat beside its main loop; of pass
	passing sync.WaitGroup
}

// EncodePeer implements raft.Transport: followers and snapshots get the address of a server, not
// its name.
func (t *transport) EncodePeer(id raft.ServerID, configured raft.ServerAddress) []byte {
	if t.pins != nil {
		if addr, ok := t.pins.AddrOf(string(id)); ok {
			return []byte(addr)
		}
	}
	return []byte(configured)
}

// AppendEntries implements raft.Transport; a heartbeat is a request without entries.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, reply *raft.AppendEntriesResponse) error {
	if err := t.disk.hangs(); err != nil && !knownbug.Is(knownbug.HangingLeads) {
		return err
	}
	return t.NetworkTransport.AppendEntries(id, target, args, reply)
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.calls }

// pass hands calls of peers to raft until the transport is closed. It waits for each answer, so
// that the snapshot does not change between hasBefore and raft's look at a call.
func (t *transport) pass() {
	for {
		for len(t.waiting) > 0 && !isClosed(t.ended) {
			beat := t.waiting[0]
			t.waiting = t.waiting[1:]
			t.hand(beat)
		}
		select {
		case call := <-t.NetworkTransport.Consumer():
			t.hand(call)
		case beat := <-t.beats:
			t.hand(beat)
		case <-t.ended:
			return
		}
	}
}

// hand lets raft answer a call. At the end of the transport the call gets no answer, so that its
// stream is closed: raft may still be reading a snapshot from it. Calls that come while the disk
// hangs are refused, or each would keep its stream until the disk answers.
//
// While raft writes what a leader sent, it may answer that leader's heartbeats: it stays in that
// call until hand takes its answer, which hand does not do in the middle of a heartbeat.
func (t *transport) hand(call raft.RPC) {
	a, ok := call.Command.(*raft.AppendEntriesRequest)
	if ok && t.hasBefore(a) {
		a.PrevLogEntry, a.PrevLogTerm = 0, 0 // nothing to compare
	}
	if s, ok := call.Command.(*raft.InstallSnapshotRequest); ok {
		if err := t.older(s); err != nil {
			refuse(call, &raft.InstallSnapshotResponse{Term: s.Term}, err)
			return
		}
	}
	_ = t.disk.refusal()                   // of an earlier write
	answers := make(chan raft.RPCResponse) // without room: raft waits until the answer is taken
	passed := call
	passed.RespChan = answers
	calls := t.calls
	var others <-chan raft.RPC // nil unless the disk hangs
	var hangs error
	look := time.NewTicker(lookForHang)
	defer look.Stop()
	for {
		select {
		case calls <- passed:
			calls = nil
		case <-look.C:
			others = nil
			if hangs = t.disk.hangs(); hangs != nil {
				others = t.NetworkTransport.Consumer()
			}
			waiting := t.waiting
			t.waiting = nil
			for _, beat := range waiting {
				t.beat(beat, call, calls == nil, hangs)
			}
		case other := <-others:
			refuse(other, nil, hangs)
		case beat := <-t.beats:
			t.beat(beat, call, calls == nil, hangs)
		case answer := <-answers:
			// The leader must learn of a newer term in any case.
			took, ok := answer.Response.(*raft.AppendEntriesResponse)
			if ok && !took.Success && took.Term == a.Term {
				answer.Error = cmp.Or(answer.Error, t.disk.refusal())
			}
			call.RespChan <- answer
			return
		case <-t.ended:
			if calls == nil { // raft has the call, and waits until its answer is taken
				go func() { <-answers }()
			}
			return
		}
	}
}

// beat lets raft answer a heartbeat that came during a call, if raft has the call by now and the
// heartbeat is harmless. Others wait for the end of the call, or are refused if the disk hangs.
func (t *transport) beat(beat, call raft.RPC, taken bool, hangs error) {
	switch {
	case taken && t.harmless(beat, call):
		t.beside(beat)
	case hangs != nil:
		refuse(beat, nil, hangs)
	default:
		t.waiting = append(t.waiting, beat)
	}
}

// harmless reports whether a heartbeat can only confirm the leader while raft answers a call: both
// are of the present term, and come from its leader.
func (t *transport) harmless(beat, call raft.RPC) bool {
	b, ok := beat.Command.(*raft.AppendEntriesRequest)
	own := t.own.Load()
	if !ok || own == nil || own.State() != raft.Follower || own.CurrentTerm() != b.Term {
		return false
	}
	switch c := call.Command.(type) {
	case *raft.AppendEntriesRequest:
		return c.Term == b.Term
	case *raft.InstallSnapshotRequest:
		return c.Term == b.Term
	}
	return false
}

// refuse answers a call that raft is not to see, once the rest of it was read: else the leader
// would see a broken stream, not the error. It does not wait for that.
func refuse(call raft.RPC, answer any, err error) {
	go func() {
		if call.Reader != nil { // a snapshot
			_, _ = io.Copy(io.Discard, call.Reader)
		}
		call.Respond(answer, err)
	}()
}

// hasBefore reports whether raft's snapshot ends with the entry before those of a call. Then all
// before them is committed and the same here.
func (t *transport) hasBefore(a *raft.AppendEntriesRequest) bool {
	own := t.own.Load()
	// Usually they follow the last entry of the log.
	if own == nil || a.PrevLogEntry == 0 || a.PrevLogEntry == own.LastIndex() {
		return false
	}
	stats := own.Stats()
	return stats["last_snapshot_index"] == strconv.FormatUint(a.PrevLogEntry, 10) &&
		stats["last_snapshot_term"] == strconv.FormatUint(a.PrevLogTerm, 10)
}

// older returns an error if raft would go back to a snapshot. Raft refuses those of older terms.
func (t *transport) older(s *raft.InstallSnapshotRequest) error {
	own := t.own.Load()
	if own == nil || s.Term < own.CurrentTerm() || s.LastLogIndex >= own.AppliedIndex() {
		return nil
	}
	err := fmt.Errorf("the leader's snapshot ends with entry %d, and entry %d is applied here: its disk is older than this one, or it is wrong about this master",
		s.LastLogIndex, own.AppliedIndex())
	t.log.Error("refused an older snapshot", "err", err)
	return err
}

// SetHeartbeatHandler implements raft.Transport. Raft calls it once, before it consumes calls.
func (t *transport) SetHeartbeatHandler(f func(raft.RPC)) {
	t.beside = f
	t.NetworkTransport.SetHeartbeatHandler(func(beat raft.RPC) {
		select {
		case t.beats <- beat:
		case <-t.ended:
			beat.Respond(nil, raft.ErrRaftShutdown)
		}
	})
}

func (t *transport) stop() { t.end.Do(func() { close(t.ended) }) }

// Close ends all requests. None is being answered when it returns.
func (t *transport) Close() error {
	t.stop()
	err := t.NetworkTransport.Close()
	t.passing.Wait()
	return err
}
