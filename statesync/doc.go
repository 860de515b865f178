// Package statesync makes file_roots and pillar_roots equal on all masters.
//
// Lives here: manifests (path, mode, size, SHA-256) of the trees on this master; a store of file
// contents by their hash; publishing this master's tree as the new head; fetching contents from the
// other masters; installing a head with a journal, so that a crash ends in the old tree or the new
// one; drift, which is what was changed on a master since its last sync; automatic catching up; the
// service between masters. Does not: who the masters are and how they connect (interface Peers),
// agreeing on the head (interface Heads), serving files to minions (package fileserver).
//
// Guarantee: once Sync has published a head, a majority of the masters that were reachable hold all
// of its contents, and every master that can reach one of them installs it, now or when it returns.
// A file that was changed on a master since its last sync is never lost: it is left alone, or kept
// aside when Force or a first sync replaces it.
//
// DESIGN.md beside this file has the choices and what was given up for them.
package statesync
