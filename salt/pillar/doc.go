// Package pillar makes the pillar of a minion from pillar_roots and the ext_pillars.
//
// Lives here: Salt's pillar compiler (salt/pillar/__init__.py, Salt 3008): environments, top files
// and their targets, SLS files and their includes, the merge strategies, ext_pillar,
// decrypt_pillar, the texts in _errors, the cache of pillar_cache, and the bounds of a compile.
//
// Does not: run templates (package render) or the functions that they call (package modules), match
// targets (package target), apply Salt's rules on which files of the roots are served (package
// fileserver), or know the requesting client (package master).
//
// Guarantee: a compile ends within Timeout and gives a map that packs to at most MaxSize bytes; its
// key _errors lists what failed, and makes minions refuse state runs.
package pillar
