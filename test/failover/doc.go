// Package failover tests how long minions and operators wait after a master was killed: seconds on
// the wall, whatever else the machine does meanwhile.
//
// Lives here: the budgets of a loss, nothing else; `make test` runs this package alone, for a
// second one beside it would be measured too. Does not: starting processes and asking them (package
// e2e), what else holds after a loss (package e2e, package faults).
package failover
