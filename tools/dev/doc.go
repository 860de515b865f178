// Package dev is the playground, which needs only the binary: masters on loopback addresses, a TCP
// balancer in front of them and simulated minions.
//
// Lives here: the balancer (the rule of lb/haproxy.cfg), the generated configs, the
// playground's script of what it shows. Does not: contain any part of a master or a minion; it
// starts them.
package dev
