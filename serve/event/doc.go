// Package event is the master's event bus and its reach over the whole cluster.
//
// Lives here: the bus of one master with prefix subscriptions, the stamp and the size limit that
// every event gets, and the mesh, by which a master with a subscriber for a prefix asks the others
// for that prefix.
//
// Does not: know what a tag means or who may fire it (package master), keep events (nobody does),
// or find the peers (a small interface that cmd/clustermaster fills).
//
// Guarantee: an event reaches each live subscriber at most once, and in the order of its master; a
// subscriber that reads too slowly loses the oldest events, counted, and slows nobody. A mesh
// subscription is in force on every master that it does not name as unconfirmed.
package event
