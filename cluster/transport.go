package cluster

import (
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"clustermaster/test/knownbug"
)

// newTransport makes raft's way to its peers.
//
// Requests are not pipelined: raft 1.8.0 stops reading a pipeline's answers after one that refuses,
// but may write two more requests, and the second of those waits for a reader for ever. The
// follower would get no entry any more, for as long as this leader leads, and the end of the node
// would wait too. What pipelining gives up is the overlap of two requests; entries that come
// meanwhile travel together in the next one.
//
// Members are dialled where addrs says that they are: the address in raft's configuration may be
// that of before a move.
func newTransport(streams raft.StreamLayer, addrs raft.ServerAddressProvider,
	log hclog.Logger) *transport {
	inFlight := 1
	if knownbug.Is(knownbug.Pipelined) {
		inFlight = 2
	}
	return &transport{NetworkTransport: raft.NewNetworkTransportWithConfig(
		&raft.NetworkTransportConfig{
			Stream: streams, MaxPool: 3, MaxRPCsInFlight: inFlight, Timeout: raftTimeout, Logger: log,
			ServerAddressProvider: addrs,
		})}
}

// transport refuses heartbeats once it is closed: raft 1.8.0 answers them beside its main loop,
// also after its end, and one of a later term ends the process when the log is closed by then.
type transport struct {
	*raft.NetworkTransport

	mu     sync.Mutex // guards closed, and the start of a heartbeat
	closed bool
	beats  sync.WaitGroup // heartbeats that are being answered
}

// SetHeartbeatHandler implements raft.Transport.
func (t *transport) SetHeartbeatHandler(f func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		t.mu.Lock()
		closed := t.closed
		if !closed {
			t.beats.Add(1)
		}
		t.mu.Unlock()
		if closed {
			rpc.Respond(nil, raft.ErrRaftShutdown)
			return
		}
		defer t.beats.Done()
		f(rpc)
	})
}

// Close ends all requests; none is being answered when it returns.
func (t *transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	err := t.NetworkTransport.Close()
	t.beats.Wait()
	return err
}
