// Package cli holds the commands that an operator types: salt, salt-key, salt-run and salt-cp.
//
// Lives here: flags as Salt's option parser reads them, arguments, prompts, exit codes and the
// texts around results. Does not: reach into the cluster (interface Daemon, the operator's socket),
// collect returns (package gather), format results (package output).
//
// Each command is a function from a context, its arguments and an Env to an exit code. It
// touches nothing but the Env.
package cli
