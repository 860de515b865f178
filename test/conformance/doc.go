// Package conformance tests the channel between minions and master from outside, against running
// processes: our master, single and as a cluster of three. Long runs add Salt's own master, with
// the same input unless it would not survive it.
//
// Lives here: the checklist of the channel, one subtest of TestChannel per line (README.md names
// the test of each line); a minion's side of the channel made with the packages wire and
// transport/minion, and real salt-minion processes for lines that need them. Does not: import
// anything else that the product imports.
//
// An expectation for both masters is written once: in the test, or for tables of questions in
// testdata/answers, as Salt's master answered; `make salt-answers` asks it again. If ours differs
// on purpose, the test states the difference, and docs/differences.md the reason.
//
// Needs: nothing for our master. For Salt's master and minions it needs the virtual environments of
// `make venvs` (folder in CLUSTERMASTER_SALT_VENVS), for minions older than version 3 of the
// protocol those that `scripts/venvs.sh DIR 3006.0 3006.9 3007.1` adds. Skipped tests say so.
// CLUSTERMASTER_LONG=1 adds the lines that take minutes.
package conformance
