// Package statemodules holds the native state functions: those of module salt, because the cluster
// owns jobs and keys, and those of module test, which tie requisites together in most
// orchestrations.
//
// Lives here: the functions, one file per module, with the parameters, results, texts and
// events that they have in Salt 3008; jobs on minions as saltutil.cmd runs them, and the
// judgement of their returns.
//
// Does not: compile or order states, judge requisites (package orchestrate), or know where minions
// are (they are reached through interfaces).
package statemodules
