// Package rings is what a master of the ring store knows of the rings in play while they change.
//
// Lives here: the list of rings, the one of them that reads use, both on disk and in messages, and
// how a read is refused by a ring that was given up. Does not: when a ring comes or goes (package
// ringstore), what a ring is (package hashring).
package rings
