package dev

import (
	"slices"
	"testing"
)

func TestNewest(t *testing.T) {
	var programs []string
	for _, release := range []string{"3006.0", "3006.28", "3006.9", "3007.1", "3007.15", "3008.3"} {
		programs = append(programs, "/venvs/salt-"+release+"/bin/salt-minion")
	}
	var got []string
	for _, program := range newest(programs) {
		got = append(got, releaseOf(program))
	}
	if want := []string{"3006.28", "3007.15", "3008.3"}; !slices.Equal(got, want) {
		t.Errorf("newest are %v, want %v", got, want)
	}
}
