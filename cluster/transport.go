package cluster

import (
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
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
	log hclog.Logger) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: streams, MaxPool: 3, MaxRPCsInFlight: 1, Timeout: raftTimeout, Logger: log,
		ServerAddressProvider: addrs,
	})
}
