// Package keystore keeps the minions' public keys and their states on the replicated state.
//
// Lives here: the answer to a key that a minion offers, changes by operators, lists, keys parsed
// once for the hot path, and the disk formats of Salt's key stores: localfs_key (folders) and
// mmap_key. Does not: replication (package cluster), the _auth message (packages wire and master),
// the decision table itself (cluster/fsm), signing options such as autosign files (package master).
//
// Guarantee: a master sends a refusal, or stores a new key, only once it knows every change
// acknowledged before. An operator's change returns when every serving master acts on it, or names
// the masters that might not.
package keystore
