// Package daemon is the process that a master runs in.
//
// Lives here: the flags of salt-master, the user, folders, pidfile and log, the background,
// signals, the reload of options, profiles, stack dumps, the limit of open files, and memory that
// is given back after a burst.
//
// Does not: make or run any part of a master. Program.Serve does, which cmd/clustermaster gives.
//
// Guarantee: a start that fails before Program.Serve has changed no more than missing folders and
// the log, and its exit code is the one that Salt's master would give.
package daemon
