// Package mastertops answers _master_tops: the SLS files that the modules of the option master_tops
// add to a minion's highstate.
//
// Lives here: ext_nodes (asks a command), saltclass (folders of nodes and classes), and the merging
// of their answers. Does not: run commands and templates itself, check who asks and whether he may
// (package master).
//
// Guarantee: no file outside saltclass's folder is opened for an id, whatever the id is. A module
// that fails is logged and left out, as with Salt.
package mastertops
