// Package faults tests clusters of real processes under faults: partitions, kills, stops, wiped
// disks, strangers.
//
// Lives here: networks between masters that a test can cut (network namespaces, or a proxy where
// those can't be made), a minion's requests and an operator's calls that are recorded, and the
// check that the recorded history is linearizable. Does not: starting processes and asking them
// (package e2e), the channel's own rules (package conformance).
//
// docs/faults.md says which demand is shown by which test. Chance is seeded: CLUSTERMASTER_SEED
// repeats a run's choices. CLUSTERMASTER_LONG=1 makes the random tests long. Nothing but the Go
// tool is needed; without root the proxy is used.
package faults
