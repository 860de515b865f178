// Package outbox keeps what is to be handed to others on disk until they have taken it: queues by
// name, first in, first out.
//
// Lives here: the queues, their bound in bytes, what was put aside.
//
// Does not: what is in an item, who takes it and when it is tried again.
//
// Guarantee: what was put before Sync returned survives a crash and a loss of power, in its order,
// until it is taken. What was taken may come again after a crash.
package outbox
