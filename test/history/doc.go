// Package history records what clients of a cluster did and saw, and checks whether a single
// machine could have answered the same.
//
// Lives here: the record, the models of keys, facts about members, tokens and turns, and what the
// check does beside the search, which is porcupine's (Wing and Gong, 1993; Lowe, 2017). Does not:
// run clients and faults.
package history
