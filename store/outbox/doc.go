// Package outbox keeps on disk what is to be handed to others, until they have taken it: named
// queues, first in, first out.
//
// Lives here: the queues, their limit in bytes, the items set aside.
//
// Does not: know what an item holds, decide who takes it and when it is tried again.
//
// Guarantee: items put before Sync returned survive a crash and a loss of power, in order, until
// they are taken. A taken item may come again after a crash.
package outbox
