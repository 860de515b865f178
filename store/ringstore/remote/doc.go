// Package remote calls the other masters of the ring store.
//
// Lives here: each call with its time limits; records as messages, and large ones in pieces; lanes,
// which queue writes to one master and send them together. Does not: choose the masters to call, or
// interpret answers (packages ringstore and query), answer (package ringstore), keep connections
// (the caller does).
//
// DESIGN.md of package ringstore has the choices.
package remote
