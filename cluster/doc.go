// Package cluster runs this master's part of the cluster: one Raft node and what keeps it a good
// member.
//
// Lives here: founding, joining, admission and promotion of members, forwarding of commands to the
// leader, reads that see every acknowledged command, readiness, rotation of secrets, the leader's
// duties. Does not: what a command changes (package cluster/fsm), sockets and proofs between peers
// (package transport/peer), Salt's protocol, placement (package hashring).
//
// Guarantees: what Propose returned is on the disks of a majority and applied here. What
// ConfirmEverywhere confirmed is applied on every ready member. After a restart a node restores the
// state on its disk before it listens to any peer.
//
// A stand-alone master is a group of one: the same code with an in-memory transport.
package cluster
