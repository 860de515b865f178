// Package clustertest runs several cluster nodes in one process, over real sockets, for tests.
//
// Lives here: starting, stopping, wiping and cutting off nodes, and waiting for what should come of
// it. Does not: minions, commands, real processes and signals (the tests at the module root).
package clustertest
