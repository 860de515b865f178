// Package diskfs is the file systems that the ring store puts under its database, one over the
// other.
//
// Lives here: Private makes each file its owner's alone, Patient makes writes to a full disk wait,
// Sealed encrypts what is written.
//
// Does not: what the files hold (Pebble), when a master takes no more records (ringstore.Options).
//
// Guarantee: a write returns when it is done as asked, or with the error of a disk that failed; a
// full disk is no such error.
package diskfs
