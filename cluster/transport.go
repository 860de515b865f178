package cluster

import (
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"clustermaster/test/knownbug"
)

// newTransport makes raft's transport to its peers.
//
// It does not pipeline requests: raft 1.8.0 stops reading a pipeline's answers after one that
// refuses, but may write two more requests, and the second of those waits forever for a reader. The
// follower would get no entries while this leader leads, and closing the node would also wait.
// Without pipelining two requests don't overlap; entries that come meanwhile travel together in the
// next one.
//
// It dials members at the address that addrs returns, because the one in raft's configuration may
// be from before a move.
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

// transport refuses heartbeats once it is closed. Raft 1.8.0 answers them outside its main loop,
// even after that has ended, and one of a later term ends the process if the log is closed by then.
type transport struct {
	*raft.NetworkTransport

	mu     sync.Mutex // guards closed, and the start of a heartbeat
	closed bool
	beats  sync.WaitGroup // heartbeats being answered
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

// Close ends all requests. None is being answered when it returns.
func (t *transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	err := t.NetworkTransport.Close()
	t.beats.Wait()
	return err
}
