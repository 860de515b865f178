// Package commands tests the operator's commands from outside: the same command lines have been
// given to a real Salt master with Salt's own commands, and are given to our master with ours, each
// with two real minions of the same ids; standard output, standard error and exit codes must be
// equal once ids of jobs, times and addresses are masked.
//
// What Salt answers is kept in testdata/answers, a file per scene, bound to each line's text and to
// the masters' settings. Scenes that need no master are asked of Salt in every run
// (TestSaltStillSays), all of them with CLUSTERMASTER_LONG=1, which says where a kept answer is no
// longer Salt's. After a change of lines or settings `make salt-answers` asks Salt anew; read the
// diff.
//
// Lives here: the lines about salt, salt-key, salt-run and salt-master of the checklist, one
// subtest each (TestCommands/03_no_match); TestDocs, which runs the commands that README.md and
// docs/ show. Does not: anything that the product imports; the channel of minions (package
// conformance); clusters under faults (package e2e).
//
// Where ours is meant to differ the line says so and pins our text; docs/differences.md has the
// reason.
//
// Needs: the virtual environment salt-3008.3 of `make venvs` (folder in CLUSTERMASTER_SALT_VENVS),
// for the minions too.
package commands
