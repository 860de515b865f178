// Package cache is the cache that operators keep things in: salt-run cache.store, list, fetch,
// flush and migrate.
//
// Lives here: banks and keys as Salt has them, a tree in which a key may lie below another bank;
// the banks grains, pillar and mine, which are what the masters remember of minions; taking in the
// files of a master of Salt's.
//
// Does not: decide who may ask (package operator), keep minions' data (package miniondata), know
// where records lie (package ringstore).
//
// Guarantee: a value whose storing gave no error is what every master fetches until it is stored
// anew or flushed. No path leaves the tree.
package cache
