// Package mastergrains computes the grains of a master itself, for templates rendered on it:
// orchestrations and reactions.
//
// Lives here: those of Salt's core grains about the machine, its system, memory and addresses that
// need no minion. Does not: store anything, know minions' grains (package miniondata).
package mastergrains
