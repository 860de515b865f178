// Command clustermaster is Salt's master and its commands in one binary. It
// picks the command by its own name (salt-master, salt, salt-key, salt-run,
// salt-cp) or by its first argument.
//
// Lives here: the composition root: which room gets which other one, signals,
// the order of start and stop, the process's user, pidfile and log.
// Does not: any logic of a room.
package main
