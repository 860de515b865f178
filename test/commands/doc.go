// Package commands tests the operator's commands from outside. The same command lines are given to
// a real Salt master with Salt's own commands, and to our master with ours, each with two real
// minions of the same ids. Standard output, standard error and exit codes must be equal after job
// ids, times and addresses are masked.
//
// Salt's answers are kept in testdata/answers, a file per scene, bound to the text of each line and
// to the masters' settings. Scenes that need no master are asked of Salt in every run
// (TestSaltStillSays). With CLUSTERMASTER_LONG=1 all are, and the test reports kept answers that
// are no longer Salt's. After a change of lines or settings `make salt-answers` asks Salt again;
// read the diff.
//
// Lives here: the lines of the checklist about salt, salt-key, salt-run and salt-master, one
// subtest each (TestCommands/03_no_match); TestDocs, which runs the commands shown in README.md and
// docs/. Does not: import anything that the product imports, test the channel of minions (package
// conformance) or clusters under faults (package e2e).
//
// If ours differs on purpose, the line says so and pins our text; docs/differences.md has the
// reason.
//
// Needs: the virtual environment salt-3008.3 of `make venvs` (folder in CLUSTERMASTER_SALT_VENVS),
// also for the minions.
package commands
