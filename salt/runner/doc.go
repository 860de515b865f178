// Package runner holds the functions of salt-run, and the wheel functions, and runs them inside the
// daemon.
//
// Lives here: the registry of functions with their parameters and texts, the binding of arguments
// with Salt's error texts, the salt/run/<jid>/new and ret events, the job cache entry of a call,
// one file per family of functions (jobs, manage, cluster, state, ...). Does not: sockets and the
// operator's session (package operator), printing (packages cli and output), gathering of returns
// (package gather).
//
// A family is a constructor that takes its dependencies and returns its functions, so the
// composition root can build a registry with the families that the daemon serves:
//
//	reg, err := runner.NewRegistry(runner.Jobs(jobs, minions), runner.Cluster(status),
//		runner.Test())
//	run := runner.New(runner.RunnerClient, reg, deps)
//
// Guarantee: a call that has begun fires exactly one new and one ret event, and its result is in
// the job cache before ret fires.
package runner
