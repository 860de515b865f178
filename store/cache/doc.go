// Package cache is the cache for operators' values: salt-run cache.store, list, fetch, flush and
// migrate.
//
// Lives here: banks and keys as Salt has them, a tree in which a key may lie below another bank;
// the banks grains, pillar and mine, which hold the masters' data on minions; importing the files
// of a Salt master.
//
// Does not: decide who may use it (package operator), keep minions' data (package miniondata), know
// where records lie (package ringstore).
//
// Guarantee: a value that was stored without an error is what every master fetches until it is
// stored anew or flushed. No path leads outside the tree.
package cache
