// Package engine runs the engines of the option engines, Salt's and the site's, as processes of the
// Python host. Each runs on the leader or on every master.
//
// Lives here: where an engine runs and since when, the leader's lease, what happens when an engine
// ends, how the option is read.
//
// Does not: run Python (package pythonhost), agree on who leads (package cluster).
//
// Guarantee: an engine of the leader runs on one master at a time. Its orders are refused once its
// master has lost the lease. What it does without the master can't be refused.
package engine
