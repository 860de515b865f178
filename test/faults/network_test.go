package faults

import (
	"testing"

	"clustermaster/test/e2e"
)

// network is where masters run, with links that can be cut. Masters count from 1; the test itself
// always reaches them. A cut loses packets silently: connections stay open until one end gives up.
type network interface {
	e2e.Network
	// cutOneWay loses what from sends to to.
	cutOneWay(t testing.TB, from, to int)
	// narrow loses the large packets alone that two masters send to each other: a tunnel with a
	// smaller MTU, and a firewall that drops the messages which say so.
	narrow(t testing.TB, a, b int)
	// heal repairs all links.
	heal(t testing.TB)
}

// newNetwork makes a network for up to that many masters, of namespaces if this machine allows it.
func newNetwork(t testing.TB, masters int) network {
	t.Helper()
	n, err := newNamespaces(t, masters)
	if err == nil {
		return n
	}
	t.Logf("left out: network namespaces (a proxy drops the frames): %v", err)
	return newProxies(t, masters)
}

// cut separates two masters.
func cut(t testing.TB, n network, a, b int) {
	t.Helper()
	n.cutOneWay(t, a, b)
	n.cutOneWay(t, b, a)
}

// narrow makes the line between two masters lose large packets.
func narrow(t testing.TB, n network, a, b int) {
	t.Helper()
	n.narrow(t, a, b)
}

// isolate separates these masters from all others, not from each other.
func isolate(t testing.TB, n network, all []*e2e.Master, alone ...*e2e.Master) {
	t.Helper()
	inside := map[int]bool{}
	for _, m := range alone {
		inside[m.Number] = true
	}
	for _, m := range alone {
		for _, other := range all {
			if !inside[other.Number] {
				cut(t, n, m.Number, other.Number)
			}
		}
	}
}
