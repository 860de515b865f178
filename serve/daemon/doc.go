// Package daemon is the process that runs a master.
//
// Lives here: the flags of salt-master, the user, folders, pidfile and log, the background,
// signals, the reload of options, profiles, stack dumps, the limit of open files, and returning
// memory to the system after a burst.
//
// Does not: make or run any part of a master. Program.Serve does that, from cmd/clustermaster.
//
// Guarantee: a start that fails before Program.Serve has changed only missing folders, the owner of
// existing ones and the log, and its exit code is the one of Salt's master.
package daemon
