//go:build race

package target

// slower is by how much the race detector slows this package down.
const slower = 5
