// Package faults tests clusters of real processes under faults: partitions, kills, stops, wiped
// disks, strangers.
//
// Lives here: networks between masters that a test can cut (network namespaces, or a proxy if those
// can't be made), recorded requests of a minion and calls of an operator, and the check that the
// recorded history is linearizable. Does not: start processes and ask them (package e2e), test the
// channel's own rules (package conformance).
//
// docs/faults.md lists the tests for each demand. Chance is seeded: CLUSTERMASTER_SEED repeats a
// run's choices. CLUSTERMASTER_LONG=1 makes the random tests long. The tests need only the Go tool;
// without root they use the proxy.
package faults
