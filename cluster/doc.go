// Package cluster runs this master's part of the cluster: one Raft node and what keeps it a good
// member.
//
// Lives here: founding, joining, admission and promotion of members, forwarding of commands to the
// leader, reads that see every acknowledged command, readiness, rotation of secrets, the leader's
// duties. Does not: what a command changes (package cluster/fsm), sockets and proofs between peers
// (package transport/peer), Salt's protocol, placement (package hashring).
//
// Guarantee: what Propose returned is on the disks of a majority and applied here; what
// ConfirmEverywhere confirmed is applied on every ready member; after a restart the state on disk
// is there before anybody is heard.
//
// A stand-alone master is a group of one: the same code with an in-memory transport.
package cluster
