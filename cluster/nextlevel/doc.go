// Package nextlevel is what the next level of the cluster may add, for tests of upgrades.
//
// Lives here: runner functions, a method between masters and settings that a program built with the
// tag "future" has, so that two releases can be tested side by side. Without the tag it is empty.
//
// Does not: anything that a release does.
//
// Guarantee: a program without the tag registers nothing of it.
package nextlevel
