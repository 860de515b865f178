// Package diskfs has the file systems that the ring store stacks under its database.
//
// Lives here: Private keeps other users out of each file, Patient makes writes to a full disk wait,
// Sealed encrypts files.
//
// Does not: know the contents of files (Pebble does), decide when a master takes no more records
// (ringstore.Options does).
//
// Guarantee: a write returns when it has succeeded, or with the error of a failed disk; a full disk
// gives no error.
package diskfs
