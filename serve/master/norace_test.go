//go:build !race

package master

const underRace = false
