// Package modules has the execution modules that templates may call on a master:
// salt['grains.get'] and others.
//
// Lives here: the functions, one file per family, with the parameters and results that they
// have in Salt 3008; the bounds of
// commands, files and web requests.
//
// Does not: run on minions, render (package render), find SLS files (package pillar), know the mine
// and the runners (called through Deps), or have functions that are neither about the cluster's
// data nor called often (package hosted finds Salt's own).
//
// Guarantee: a call of an unknown function fails with its name; a command ends with its context,
// and its output is bounded.
package modules
