// Package miniondata keeps the masters' data on each minion: grains, pillar and mine.
//
// Lives here: the records of a minion on the ring, one for its grains, one for each pillar
// environment, one for each mine function; merging, replacing and deleting them; sending a target's
// questions about them to the masters that own them. Does not: accept them from a minion, decide
// who may read a mine value (package master), match targets (package target), choose the masters
// for records and the number of copies (package ringstore).
//
// Guarantee: a value that was written without an error is what every master reads until a later
// write or deletion.
package miniondata
