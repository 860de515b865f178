// Package mastergrains computes the grains of a master itself, for templates rendered on it:
// orchestrations and reactions.
//
// Lives here: those of Salt's core grains about the machine, its system, memory and addresses that
// need no minion; those of the grains file and of the option grains. Does not: store anything, read
// the configuration, know minions' grains (package miniondata).
package mastergrains
