// Package e2e runs real clusters for tests: our master's processes, HAProxy with
// the shipped configuration, and unmodified salt-minion processes of the
// releases that we serve.
//
// Lives here: starting, stopping, killing and freezing those processes by their
// process id, their folders and configuration, running the operator's commands,
// waiting on conditions, and showing every log when a test fails.
// Does not: anything that the product imports.
//
// A test picks a random base 127.a.b and gives each master an address of its own
// below it with the usual ports, the balancer another; so several tests, and
// whatever else runs on the machine, don't meet.
//
// Needs: haproxy and the virtual environments of `make venvs` (folder in
// CLUSTERMASTER_SALT_VENVS). `make test` sees to both.
package e2e
