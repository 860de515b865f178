// Package mastertops answers _master_tops: the SLS files that the modules of the option master_tops
// add to a minion's highstate.
//
// Lives here: ext_nodes (asks a command), and the merging of the modules' answers. Does not: run
// commands and Python (all other modules) itself, check who asks and whether he may (package
// master).
//
// Guarantee: a module is asked for the id that the channel confirmed, whatever id the minion's
// options name. A module that fails is logged and left out, as with Salt.
package mastertops
