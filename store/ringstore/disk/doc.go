// Package disk is the part of the ring store that one master keeps on its own disk.
//
// Lives here: the format of keys and values on Pebble; the hybrid logical clock; the one committer
// that merges writes with what is stored, and syncs them in groups; sums over the records by cell,
// in memory and on disk; copies held for other masters; expiry by whole time buckets; notes of the
// store about itself; reading all records to find rot; and moving a damaged database aside. Does
// not: which master owns what, quorums, other masters at all (package ringstore).
//
// DESIGN.md of package ringstore has the choices.
package disk
