// Package history records what clients of a cluster did and saw, and checks whether a single
// machine could have answered the same.
//
// Lives here: the record, and models of keys and of facts about members. Does not: run clients and
// faults.
package history
