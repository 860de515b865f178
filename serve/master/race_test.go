//go:build race

package master

// underRace: the race detector makes sync.Pool forget at random, so allocations can't be counted.
const underRace = true
