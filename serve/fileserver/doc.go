// Package fileserver serves files to minions: file_roots, and those of other back ends.
//
// Lives here: the answers to the file commands of Salt's roots backend, with its rules of what is
// served and listed, and the caches of hashes, lists and small files.
//
// Does not: check who asks (package master), distribute roots to other masters (package statesync),
// or know where other back ends have their files from (interface Backend).
//
// Guarantee: nothing outside a root is served but through a link in it, and that only with
// fileserver_followsymlinks; only regular files are read; a changed file has its new content and
// hash at once, and lists follow within a second; a file is hashed once per change, however many
// minions ask.
package fileserver
