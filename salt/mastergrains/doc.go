// Package mastergrains tells the grains of a master itself, for templates that are rendered on it:
// orchestrations and reactions.
//
// Lives here: what Salt's core grains say of the machine, its system, memory and addresses, as far
// as it can be told without a minion. Does not: keep anything, or know minions' grains (package
// miniondata).
package mastergrains
