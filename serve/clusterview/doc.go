// Package clusterview shows the cluster to the runner family cluster: members, ring, audit trail
// and the state of file_roots and pillar_roots. It passes on the orders of operators.
//
// Lives here: node, ring store, state sync and backups in the words of package runner.
//
// Does not: decide about members (package cluster), or write tables and texts (package runner).
//
// Guarantee: a look changes nothing, and says when the leader could not confirm it.
package clusterview
