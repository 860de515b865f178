// Package simminion is a minion without Salt: it signs in, asks for its pillar, hears
// publications and returns what a handful of functions answer. Thousands of them fit
// in one process; `clustermaster dev` and `bench` use them, and tests that need many.
//
// Lives here: a minion's order of things on the wire (docs of the channel, section 10),
// its retries, time limits and reconnects, its memory of jids, the test functions.
// Does not: ZMTP (package transport/minion), the bytes of messages (package wire).
//
// Guarantee: towards a master a simulated minion behaves like the release that it
// claims to be, except that it runs nothing on its machine; it is no less patient and
// no quicker to forgive, so what it needs a real minion gets too.
package simminion
