// Package modules is the execution modules that templates may call on a master: salt['grains.get']
// and the like.
//
// Lives here: the functions, one file per family, with the parameters and results that they have in
// Salt 3008; the list of them for docs/template-functions.md; the bounds of commands, files and web
// requests.
//
// Does not: run on minions, render (package render), find SLS files (package pillar), know where
// mine and runners are (told through Deps).
//
// Guarantee: a function that is not in the list is refused by name; a command ends with its
// context, and its output is bounded.
package modules
