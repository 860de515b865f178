// Package level says which release brought what masters write to each other and to disk.
//
// Lives here: the table of replicated commands, snapshot records, fields, RPCs and formats on disk
// with the level of each; the releases that brought the levels; the check that a message holds
// nothing unknown. Does not: agreeing on the cluster's level (package cluster), encoding (the
// packages that own the bytes).
//
// What a command does to the state belongs to its level as well: one that is to do something else
// gets a new op, or a field of a higher level that says so, because masters of both releases apply
// the same log.
//
// Guarantee: nothing above the cluster's level is written to the log, sent to a peer or put on
// disk, so that every member can read all of it. A member that meets something newer than itself
// stops and names the release to install.
package level
