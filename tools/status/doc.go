// Package status holds the commands clustermaster status, members and watch: what a cluster is
// doing, for people and for scripts.
//
// Lives here: asking the running master on this machine, tables, JSON, progress bars of what is
// being moved, exit codes. Does not: judge anything by itself; cluster.health of the master does
// that.
package status
