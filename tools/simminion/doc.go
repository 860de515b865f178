// Package simminion is a minion without Salt: it signs in, requests its pillar, receives
// publications and returns the results of a few functions. Thousands of them fit in one process;
// `clustermaster dev` and `bench` use them, as do tests that need many.
//
// Lives here: a minion's sequence of messages on the wire (docs of the channel, section 10), its
// retries, time limits and reconnects, its memory of jids, the test functions. Does not: ZMTP
// (package transport/minion), the bytes of messages (package wire).
//
// Guarantee: towards a master a simulated minion behaves like the release that it claims to be,
// except that it runs nothing on its machine. It has the same time limits and retries, so a master
// that serves it serves a real minion too.
package simminion
