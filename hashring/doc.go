// Package hashring computes which masters own a record, with pure functions of the member list.
//
// Lives here: partitions, owners of a partition (primary first), epochs, shares, the transfer plan
// between two rings. Does not: decide who is a member and when the ring changes (package cluster),
// keep or move records (package ringstore).
//
// Guarantee: two rings with the same members, partitions and replicas have the same owners on every
// master, whatever the order of the members. A member that joins or leaves moves only about its
// share of the copies.
package hashring
