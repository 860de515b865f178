//go:build race

package minion

// idleStack is the stack of a connection that waits, in bytes. The race detector makes frames
// larger.
const idleStack = 8192
