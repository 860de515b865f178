// Package remote is how a master of the ring store calls the others.
//
// Lives here: each call with its time limits; records as messages, and large ones in pieces; lanes,
// in which writes to one master wait and go together. Does not: whom to call, and what an answer
// means (packages ringstore and query), answering (package ringstore), connections (its user).
//
// DESIGN.md of package ringstore has the choices.
package remote
