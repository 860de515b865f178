// Package event is the master's event bus and its reach over the whole cluster.
//
// Lives here: the bus of one master with prefix subscriptions, the stamp and the size limit of
// every event, and the mesh, by which a master with a subscriber for a prefix gets that prefix's
// events from the others.
//
// Does not: know the meaning of a tag or who may fire it (package master), store events, or find
// the peers (a small interface that cmd/clustermaster implements).
//
// Guarantee: an event reaches each live subscriber at most once, and in the order of its master. A
// subscriber that reads too slowly loses the oldest events, which are counted, and slows no other.
// A mesh subscription is in force on every master that it does not list as unconfirmed.
package event
