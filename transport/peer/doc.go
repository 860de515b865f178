// Package peer is the one port between masters, cluster_pool_port.
//
// Lives here: the TLS 1.3 listener and its split by ALPN into raft, rpc, join
// and relay; the detour through another master while a line is cut; node keys
// and the check of pinned keys on accept and on dial; the Raft stream layer,
// the gRPC listener with the peer's identity, cached client connections; the
// heartbeat that says whether a peer answers; the join hand-shake with its
// proofs and limits.
//
// Does not: decide who is a member (package cluster fills Pins and answers joins), interpret an RPC
// or a Raft entry, hold the cluster's key.
//
// Guarantee: no byte of a connection reaches Raft or an RPC handler before its
// sender proved possession of a node key that Pins names, and none of a join
// request reaches the JoinHandler before both sides proved the cluster_secret.
package peer
