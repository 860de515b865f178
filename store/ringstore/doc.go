// Package ringstore keeps records on the masters that own them.
//
// Lives here: records named by space, place and name on Pebble; writing to a quorum of the owners,
// durable before the answer; reading and listing with repair; scans over all masters with what they
// cover; questions about many records, which their owners judge, and the parts of records kept in
// memory for them; hints for owners that are away and their hand-over; comparing copies; following
// the ring as it grows and shrinks; expiry by whole time buckets. Does not: know jobs or minions
// (packages jobcache, miniondata), decide which masters are members and when the ring changes
// (package cluster), or who may connect (package transport/peer).
//
// Guarantee: an acknowledged write is on stable storage of a write quorum of its owners, stand-ins
// included, or of all live masters if they are fewer. Every later read that a quorum answers finds
// it until it expires, is replaced or deleted, whichever minority of masters died in between.
//
// DESIGN.md beside this file has the choices and what was given up for them.
package ringstore
