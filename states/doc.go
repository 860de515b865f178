// Package states is the state functions that run on a master: test.nop, salt.state and the like.
//
// Lives here: the functions, one file per module, with the parameters, results and texts that they have in Salt 3008.
//
// Does not: compile or order states, judge requisites (package state), or know where minions are (told through interfaces).
package states
