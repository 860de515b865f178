// Package conformance tests the channel between minions and master from outside, against running
// processes: our master, single and as a cluster of three, and in long runs beside it Salt's own
// master, which is given the same input where it survives it.
//
// Lives here: the checklist of the channel, one subtest of TestChannel per line (README.md says
// where each line is proven); a minion's side of the channel made with the packages wire and
// transport/minion, and real salt-minion processes where a line asks for them. Does not: anything
// that the product imports.
//
// An expectation that holds for both masters is written once, in the test or, of tables of
// questions, in testdata/answers as Salt's master gave it; `make salt-answers` asks it anew. Where
// ours is meant to differ the difference stands in the test, and with its reason in
// docs/differences.md.
//
// Needs: nothing for our master; for Salt's master and minions the virtual environments of
// `make venvs` (folder in CLUSTERMASTER_SALT_VENVS), for minions older than version 3 of the
// protocol those that `scripts/venvs.sh DIR 3006.0 3006.9 3007.1` adds. What is left out says so.
// CLUSTERMASTER_LONG=1 adds the lines that take minutes.
package conformance
