// Package simulation shows how a cluster grows, up to hundreds of masters and millions of minions,
// in memory and in seconds. It uses the real code for placing data (package hashring) and for the
// replicated state (package cluster/fsm), without disks, sockets and clocks.
//
// Lives here: balance of partitions and of minions' data, the data that moves when a master joins
// or dies, size and speed of the replicated state. Does not: write docs/scale.md (command pages),
// measure a running master (package bench).
package simulation
