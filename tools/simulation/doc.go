// Package simulation shows how a cluster grows, up to hundreds of masters and millions of minions,
// in memory and in seconds: with the very code that places data (package hashring) and agrees on
// facts (package cluster/fsm), without disks, sockets and clocks.
//
// Lives here: balance of partitions and of minions' data, what a joining or dying master makes the
// others move, size and speed of the replicated state. Does not: write docs/scale.md
// (command pages), measure a running master (package bench).
package simulation
