// Package rings keeps a master's view of the rings in use while the ring changes.
//
// Lives here: the list of rings, the one of them that reads use, both on disk and in messages, and
// the refusal of reads by a ring that was given up. Does not: decide when a ring comes or goes
// (package ringstore), define a ring (package hashring).
package rings
