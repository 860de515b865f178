// Package minion is the minions' side of a master: the request endpoint (what Salt
// serves with a ROUTER socket) and the publish endpoint (a PUB socket), as ZMTP 3
// over TCP, plus the small client that simulated minions use.
//
// Lives here: accept loops, the ZMTP hand-shake and frames, heartbeats, limits on
// everything a stranger can send, PROXY protocol, one bounded queue per subscriber,
// publications kept for subscribers that come back, the record of mass losses.
// Does not: anything inside a message (package wire), what to answer or to publish
// (package master), when to open the ports (cmd/clustermaster).
//
// Guarantee: a peer is served by its own connection and nothing else. Bad bytes, a
// half-open hand-shake or a reader that sleeps cost their sender its connection or its
// copies; they never delay another peer and never cost more memory than was sent.
package minion
