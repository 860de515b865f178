// Package pillar makes the pillar of a minion from pillar_roots and the ext_pillars.
//
// Lives here: Salt's pillar compiler (salt/pillar/__init__.py, Salt 3008): environments, top files
// and their targets, SLS files and their includes, the merge strategies, ext_pillar,
// decrypt_pillar, the texts in _errors, the cache of pillar_cache, and the bounds of it all.
//
// Does not: run templates (package render) or the functions that they call (package modules), match
// targets (package target), read roots with Salt's rules of what is served (package fileserver), or
// know who asks (package master).
//
// Guarantee: a compile ends within Timeout and gives a map that packs to at most MaxSize bytes;
// whatever of it failed is said in its key _errors, by which minions refuse state runs.
package pillar
