package cluster

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// pipes is a stream layer in memory, of one raft node, whose times are those of a bubble.
type pipes struct {
	queue  chan net.Conn
	closed chan struct{}
	dialed atomic.Int64 // streams to this node
}

func newPipes() *pipes { return &pipes{queue: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.queue:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "follower"} }

func (p *pipes) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return nil, net.ErrClosed
}

// dialPipes is the stream layer of a peer that dials a node with pipes.
type dialPipes struct {
	*pipes
	to *pipes
}

func (d dialPipes) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case d.to.queue <- far:
		d.to.dialed.Add(1)
		return near, nil
	case <-d.to.closed:
		return nil, net.ErrClosed
	}
}

// deaf is a raft node that follows and never stands for election, in a bubble.
type deaf struct {
	*lone
	pipes *pipes
}

func startDeaf(t *testing.T) *deaf {
	t.Helper()
	p := newPipes()
	return &deaf{startLone(t, p, raft.NewInmemStore()), p}
}

// lone is raft's follower, which never stands for election.
type lone struct {
	*raft.Raft
	log   *trackedLog
	trans *transport
}

func startLone(t *testing.T, streams raft.StreamLayer, disk raft.LogStore) *lone {
	t.Helper()
	return startLoneWith(t, streams, &trackedLog{LogStore: disk, patient: time.Hour}, forgetful{},
		raft.NewInmemSnapshotStore())
}

func startLoneWith(t *testing.T, streams raft.StreamLayer, log *trackedLog, state raft.FSM,
	snapshots raft.SnapshotStore) *lone {
	t.Helper()
	trans := newTransport(streams, nil, log, hclog.NewNullLogger())
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "follower", hclog.NewNullLogger()
	conf.HeartbeatTimeout, conf.ElectionTimeout = 1000*time.Hour, 1000*time.Hour
	conf.RestoreCommittedLogs = true
	r, err := raft.NewRaft(conf, state, log, raft.NewInmemStore(), snapshots, trans)
	if err != nil {
		t.Fatal(err)
	}
	trans.own.Store(r)
	return &lone{r, log, trans}
}

// end ends the node. It waits for raft, which waits for its main loop.
func (l *lone) end(t *testing.T) {
	t.Helper()
	ended := l.Shutdown()
	if err := l.trans.Close(); err != nil {
		t.Error(err)
	}
	if err := ended.Error(); err != nil {
		t.Error(err)
	}
}

// peer is another raft node, which waits for answers for an hour.
func (d *deaf) peer() *raft.NetworkTransport {
	return raft.NewNetworkTransport(dialPipes{newPipes(), d.pipes}, 3, time.Hour, io.Discard)
}

func endPeer(t *testing.T, p *raft.NetworkTransport) {
	t.Helper()
	p.CloseStreams()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

var fromLeader = raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("leader"), Addr: []byte("leader")}

// snapshotOf is what a leader sends before the data of a snapshot, which ends with the entry last.
func snapshotOf(term, last uint64, size int64) *raft.InstallSnapshotRequest {
	return &raft.InstallSnapshotRequest{RPCHeader: fromLeader, SnapshotVersion: raft.SnapshotVersionMax,
		Term: term, LastLogIndex: last, LastLogTerm: 2, Size: size,
		Configuration: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{
			{ID: "leader", Address: "leader"}, {ID: "follower", Address: "follower"}}}),
		ConfigurationIndex: 1}
}

// install sends a snapshot.
func install(p *raft.NetworkTransport, size int64, data io.Reader) (raft.InstallSnapshotResponse, error) {
	var got raft.InstallSnapshotResponse
	err := p.InstallSnapshot("follower", "follower", snapshotOf(2, 113, size), &got, data)
	return got, err
}

// piece is as much of a snapshot as raft sends at once.
const piece = 256 << 10

// stalled begins to send a snapshot and stops half-way. The caller ends the sender with resume and
// gets the outcome from sent.
func stalled(p *raft.NetworkTransport) (resume func(), sent <-chan error) {
	more, stops := io.Pipe()
	out := make(chan error, 1)
	go func() {
		_, err := install(p, 2*piece, io.MultiReader(bytes.NewReader(make([]byte, piece)), more))
		out <- err
	}()
	return func() { stops.Close() }, out
}

// A leader that stops in the middle of a snapshot holds up a follower's votes for raftTimeout.
func TestLeaderThatStopsInASnapshotDelaysNoElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		follower := startDeaf(t)
		defer follower.end(t)
		leader, candidate := follower.peer(), follower.peer()
		defer endPeer(t, leader)
		defer endPeer(t, candidate)
		resume, sent := stalled(leader)
		synctest.Wait() // until the follower reads on
		began := time.Now()
		var vote raft.RequestPreVoteResponse
		err := candidate.RequestPreVote("follower", "follower", &raft.RequestPreVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("candidate"), Addr: []byte("candidate")},
			Term:      3, LastLogIndex: 113, LastLogTerm: 2}, &vote)
		if took := time.Since(began); err != nil || took > raftTimeout {
			t.Errorf("the candidate's answer: %v after %v", err, took)
		}
		resume()
		if err := <-sent; err == nil {
			t.Error("half a snapshot was taken")
		}
	})
}

// The end of a follower does not wait for a leader that stopped in the middle of a snapshot.
func TestEndDuringASnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		follower := startDeaf(t)
		leader := follower.peer()
		defer endPeer(t, leader)
		resume, sent := stalled(leader)
		synctest.Wait()
		began := time.Now()
		follower.trans.stop() // Close does so, and on a busy machine ends the streams later
		synctest.Wait()
		follower.end(t)
		if took := time.Since(began); took >= raftTimeout {
			t.Errorf("the end takes %v", took)
		}
		resume()
		if err := <-sent; err == nil {
			t.Error("half a snapshot was taken")
		}
	})
}

// slowly yields a snapshot piece by piece, with a pause before each.
type slowly struct {
	pause time.Duration
	left  int
}

func (s *slowly) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(s.pause) // fake time
	n := min(len(b), piece, s.left)
	s.left -= n
	return n, nil
}

// A snapshot may take long as long as it goes on.
func TestSlowSnapshotIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		follower := startDeaf(t)
		defer follower.end(t)
		leader := follower.peer()
		defer endPeer(t, leader)
		began := time.Now()
		got, err := install(leader, 8*piece, &slowly{raftTimeout - time.Millisecond, 8 * piece})
		if err != nil || !got.Success || time.Since(began) < 7*raftTimeout {
			t.Errorf("%+v, %v after %v", got, err, time.Since(began))
		}
	})
}

// A stream stays open however long no request comes.
func TestIdleStreamStaysOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		follower := startDeaf(t)
		defer follower.end(t)
		leader := follower.peer()
		defer endPeer(t, leader)
		for range 3 {
			time.Sleep(20 * raftTimeout) // fake time
			var answer raft.AppendEntriesResponse
			err := leader.AppendEntries("follower", "follower", &raft.AppendEntriesRequest{RPCHeader: fromLeader,
				Term: 2}, &answer)
			if err != nil || !answer.Success {
				t.Errorf("%+v, %v", answer, err)
			}
		}
		if n := follower.pipes.dialed.Load(); n != 1 {
			t.Errorf("%d streams", n)
		}
	})
}
