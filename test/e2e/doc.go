// Package e2e runs real clusters for tests: our master's processes, HAProxy with the shipped
// configuration, and unmodified salt-minion processes of the releases that we serve.
//
// Lives here: starting, stopping, killing and freezing those processes by their process id, their
// folders and configuration, running the operator's commands, waiting on conditions, and showing
// every log when a test fails. Does not: import anything that the product imports.
//
// A test picks a random base 127.a.b. Below it each master has its own address with the usual
// ports, and the balancer has another. So tests do not meet each other, or anything else on the
// machine.
//
// Needs: haproxy and the virtual environments of `make venvs` (folder in CLUSTERMASTER_SALT_VENVS).
// `make test` provides both.
package e2e
