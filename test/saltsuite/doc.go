// Package saltsuite compares the page about Salt's own tests with the lists that the harness in
// this folder goes by.
//
// Lives here: the harness (in Python), the lists of files that are run and left out, the outcomes.
// Does not: Salt's tests, which are fetched for a run.
package saltsuite
