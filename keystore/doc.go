// Package keystore keeps the minions' public keys and their states on the replicated state.
//
// Lives here: the answer to a key that a minion offers, changes by operators, lists, keys parsed
// once for the hot path, and the disk formats of Salt's key stores: localfs_key (folders) and
// mmap_key. Does not: replication (package cluster), the _auth message (packages wire and master),
// the decision table itself (cluster/fsm), signing options such as autosign files (package master).
//
// Guarantee: a refusal is told, and a new key stored, only by a master that knows every change
// acknowledged before; a change by an operator returns when every serving master acts on it, or
// names those that might not.
package keystore
