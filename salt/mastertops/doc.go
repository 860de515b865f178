// Package mastertops answers _master_tops: which SLS files the modules of the option master_tops
// have for a minion's highstate.
//
// Lives here: ext_nodes (a command that knows) and saltclass (folders of nodes and classes), and
// how their answers are laid together. Does not: run commands and templates itself, know who asks
// and whether he may (package master).
//
// Guarantee: no file outside saltclass' folder is opened for an id, whatever it is; a module that
// fails is logged and left out, as with Salt.
package mastertops
