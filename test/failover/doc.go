// Package failover tests how long minions and operators wait after a master was killed, in seconds
// of real time.
//
// Lives here: the budgets of a loss, nothing else. `make test` runs this package alone, because a
// package beside it would be measured too. Does not: start processes and ask them (package e2e),
// test what else holds after a loss (packages e2e and faults).
package failover
