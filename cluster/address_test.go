package cluster

import (
	"slices"
	"testing"
)

func TestAddressesAreOrderedByNumber(t *testing.T) {
	t.Parallel()
	want := []string{"10.0.0.9:4520", "10.0.0.10:999", "10.0.0.10:4520", "[fd00::9]:1",
		"[fd00::10]:1", "alpha:1", "beta:1"}
	have := slices.Clone(want)
	slices.Reverse(have)
	if got := sortedSet(append(have, want[2])); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheSameMastersByOtherNames(t *testing.T) {
	t.Parallel()
	names := map[string]string{"10.0.0.1:1": "m1/a", "one:1": "m1/a", "10.0.0.2:1": "m2/b"}
	tests := []struct {
		name string
		a, b []string
		want bool
	}{
		{"equal", []string{"10.0.0.1:1", "10.0.0.2:1"}, []string{"10.0.0.2:1", "10.0.0.1:1"}, true},
		{"a name for an address", []string{"10.0.0.1:1", "10.0.0.2:1"},
			[]string{"10.0.0.2:1", "one:1"}, true},
		{"one more", []string{"10.0.0.1:1", "10.0.0.2:1"},
			[]string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}, false},
		{"another", []string{"10.0.0.1:1", "10.0.0.2:1"}, []string{"10.0.0.1:1", "10.0.0.3:1"},
			false},
	}
	for _, tt := range tests {
		if got := sameMasters(tt.a, tt.b, names); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}
