//go:build !race

package minion

// idleStack is the stack of a connection that waits, in bytes: the smallest that there is.
const idleStack = 2048
