// Package engine runs the engines of the option engines, Salt's and the site's, as processes of the
// Python host: each on the master that leads, or on every master.
//
// Lives here: where an engine runs and since when, the lease of the master that leads, what is done
// when an engine ends, how the option is read.
//
// Does not: run Python (package pythonhost), agree on who leads (package cluster).
//
// Guarantee: an engine that runs where the leader is does so on one master at a time, and what one
// orders whose master has lost the lead is refused. What it does without the master can't be.
package engine
