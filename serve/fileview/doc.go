// Package fileview shows served files to operators and pillars: the file server, git remotes and
// pushed files in the words of the runner families fileserver, git_pillar and pushed, and the
// folders of git_pillar as package pillar reads them.
//
// Lives here: which back ends and remotes an order means, and which of their errors an operator
// sees.
//
// Does not: serve or fetch (packages fileserver, gitfs, uploads), or write tables and texts
// (package runner).
package fileview
