// Package fsm is the state that all masters of a cluster agree on, as typed commands over plain
// maps.
//
// Lives here: the commands and their numbers in the log, what each one changes, snapshots, and the
// reads that every request makes (key by id, member by node key, secrets, ring). Does not: Raft,
// proposing, waiting, clocks, randomness, files (package cluster), Salt's protocol.
//
// Guarantee: the same commands in the same order give the same state, the same results and the same
// snapshot bytes on every master. A refusal is an ordinary Result and changes nothing.
package fsm
