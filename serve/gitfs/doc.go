// Package gitfs serves files from git repositories: the file server's back end gitfs and the trees
// of git_pillar.
//
// Lives here: the options of remotes; fetching into bare mirrors with the installed git; the map
// from branches, tags and commits to environments; reading trees and contents from the mirrors; the
// masters' agreement on the commits to serve.
//
// Does not: answer minions (package fileserver), compile pillars (package pillar), know how masters
// agree (type Cluster, which a node is).
//
// Guarantee: git runs in a locked environment, without a terminal, hooks or submodules, only over
// the transports that are allowed, and its whole process group ends at a timeout. Nothing outside
// the package's own folder is written. Names that could lead out of a tree are neither listed nor
// found. Memory does not grow with the number of files. The masters serve what they agreed on until
// they agree on something else, whatever happens to the remotes.
package gitfs
