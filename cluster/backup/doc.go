// Package backup is what a cluster must have to begin again elsewhere: files, sealed with a
// passphrase.
//
// Lives here: the form (header, key derivation, sealed chunks, records), writing and reading it;
// the walk over cluster and job cache that a backup is, and back; when scheduled backups are due,
// their names in a folder, their verification, and which of them are removed. Does not: agree on
// anything (package cluster).
//
// Guarantee: a file that was cut short, changed, or sealed with another passphrase is an error
// before its end is reached, never less data; Verify reads to the end, so run it before anything is
// put back.
package backup
