// Package status holds the commands clustermaster status, members and watch: the state of a
// cluster, for people and for scripts.
//
// Lives here: asking the running master on this machine, tables, JSON, progress bars of movements,
// exit codes. Does not: judge the state; cluster.health of the master does that.
package status
