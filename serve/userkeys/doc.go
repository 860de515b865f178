// Package userkeys keeps the keys by which users of a master's machine prove who they are in clear
// commands.
//
// Lives here: which users have one, the files <cachedir>/.<user>_key as Salt's masters write them,
// and that all masters know the same key for a user. Does not: compare a key with the one of a
// request (package master), say what a user may order (package acl).
//
// A user's key is agreed on by Raft, not derived from a secret that all masters have: a file that a
// Salt master left keeps its content, for the first master that proposes it decides for all; the
// daily rotation of the session secret leaves keys alone, for programs read them once and run on;
// and salt-run cluster.rotate_keys makes new ones, so a key that got out can be taken back. Given
// up: users' keys are part of the replicated state, like the AES key.
//
// Guarantee: a key that is in a running master's file is good on every master that is ready, from
// the moment when the file is there.
package userkeys
