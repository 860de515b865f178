// Package orders carries out on this master what operators, states, templates and the reactor
// order: jobs of minions, changes of keys, runner and wheel functions.
//
// Lives here: the interfaces of packages operator, gather, runner, statemodules and reactor on top
// of master, job cache, event mesh and key store, one type per subject.
//
// Does not: decide who may order what (packages acl and operator), what a function does (package
// runner), or what follows from a change of keys (package keystore).
//
// Guarantee: a started function goes on after its caller has left, until the master stops.
package orders
