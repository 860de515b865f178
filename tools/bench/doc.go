// Package bench measures Salt masters from the minions' side: ours, and Salt's own in the same way.
//
// Lives here: the load generator (sign-in, sealed requests, closed and open loop), the figures of
// whole masters that it starts itself (memory, start, growth of minions, masters, jobs), tables,
// JSON.
// Does not: the bytes of messages (package wire), sockets (package transport/minion), a
// minion's life (package simminion), a master, the pages of docs/ (command pages).
//
// Guarantee: a figure counts only answers that were checked to be the right ones, every
// request that was due is in the account, and in the open loop a latency begins when the
// request was due, not when the generator came round to sending it.
package bench
