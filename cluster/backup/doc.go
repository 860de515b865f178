// Package backup is the form of a backup file: what a cluster must have to begin again elsewhere, sealed with a passphrase.
//
// Lives here: the form (header, key derivation, sealed chunks, records), writing and reading it; the names of scheduled backups in a
// folder, and which of them are removed.
// Does not: choosing what is saved and putting it back, and when (cmd/clustermaster joins cluster and jobcache to it).
//
// Guarantee: a file that was cut short, changed, or sealed with another passphrase is an error before its end is reached, never less data;
// Verify reads to the end, so run it before anything is put back.
package backup
