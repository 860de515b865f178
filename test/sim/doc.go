// Package sim runs three to seven masters in one process, on fake time, from one seed.
//
// Lives here: a network that delays, breaks and cuts connections, a disk that loses what was not
// synced, and clients that record what they did. The masters' parts are the real ones: Raft and its
// state, ring store, key store, event mesh, peer port. Does not: run real processes and sockets
// (test/faults), answer minions' messages (test/e2e).
package sim
