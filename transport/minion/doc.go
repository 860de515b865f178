// Package minion is a master's side of its minions' connections: the request endpoint (Salt's
// ROUTER socket) and the publish endpoint (a PUB socket), as ZMTP 3 over TCP, plus the small client
// of simulated minions.
//
// Lives here: accept loops, the ZMTP hand-shake and frames, heartbeats, limits on
// everything a stranger can send, PROXY protocol, one bounded queue per subscriber,
// publications kept for subscribers that come back, the record of mass losses.
// Does not: read messages (package wire), decide what to answer or to publish (package master),
// decide when to open the ports (cmd/clustermaster).
//
// Guarantee: a peer affects only its own connection. Bad bytes, a half-open hand-shake or a slow
// reader cost that peer its connection or its copies; they never delay another peer and never cost
// more memory than was sent.
package minion
