// Command clustermaster is Salt's master and its commands in one binary. It
// picks the command by its own name (salt-master, salt, salt-key, salt-run,
// salt-cp) or by its first argument.
//
// Lives here: the composition root: which package gets which other one, and the
// order of start and stop.
// Does not: any decision of a package; the process itself (package daemon).
package main
