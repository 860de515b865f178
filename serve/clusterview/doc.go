// Package clusterview shows the cluster to the runner family cluster: members, ring, audit trail
// and the state of file_roots and pillar_roots.
//
// Lives here: node, ring store and state sync in the words of package runner.
//
// Does not: change membership (package cluster), or write tables and texts (package runner).
//
// Guarantee: a look changes nothing, and says when the leader could not confirm it.
package clusterview
