// Package miniondata keeps the masters' data on each minion: grains, pillar and mine.
//
// Lives here: the records of a minion on the ring, one for its grains, one for each pillar
// environment, one for each mine function; merging, replacing and deleting them; sending a target's
// questions about them to the masters that own them. Does not: accepting them from a minion
// (package master), who may read a mine value (package master), what a target means (package
// target), where records lie and how many copies there are (package ringstore).
//
// Guarantee: a value that was written without an error is what every master reads until a later
// write or deletion.
package miniondata
