// Command clustermaster is Salt's master and its commands in one binary. It
// picks the command by its own name (salt-master, salt, salt-key, salt-run,
// salt-cp) or by its first argument.
//
// Lives here: the composition root, which connects the packages, and starts and stops them in
// order. Does not: decide what belongs to a package, or handle the process itself (package daemon).
package main
