// Package hashring computes which masters own a record, with pure functions of the member list.
//
// Lives here: partitions, owners of a partition (primary first), epochs, shares, the transfer plan
// between two rings. Does not: who is a member and when the ring changes (package cluster), keeping
// or moving records (package ringstore).
//
// Guarantee: two rings made of the same members, partitions and replicas have the same owners on
// every master, in whatever order the members were given; a member that joins or leaves moves about
// its share of the copies and no more.
package hashring
