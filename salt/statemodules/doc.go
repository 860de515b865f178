// Package statemodules is the state functions that run on a master: test.nop, salt.state and the
// like.
//
// Lives here: the functions, one file per module, with the parameters, results, texts and events
// that they have in Salt 3008; jobs on minions as saltutil.cmd runs them, and how their returns are
// judged.
//
// Does not: compile or order states, judge requisites (package state), or know where minions are
// (told through interfaces).
package statemodules
