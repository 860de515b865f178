package gitfs

import "testing"

// TestHolding asks for a majority of the reachable masters and for one of all voters: with only
// the first, two of five voters would do while two others are away.
func TestHolding(t *testing.T) {
	t.Parallel()
	five := []string{"a", "b", "c", "d", "e"}
	for name, c := range map[string]struct {
		reachable int
		voters    []string
		holders   []string
		enough    bool
	}{
		"alone":                           {1, five[:1], five[:1], true},
		"one of three":                    {3, five[:3], five[:1], false},
		"two of three":                    {3, five[:3], five[:2], true},
		"two of three, one away":          {2, five[:3], five[:2], true},
		"two of five, two away":           {3, five, five[:2], false},
		"three of five, two away":         {3, five, five[:3], true},
		"voters, and learners without":    {5, five[:3], five[:2], false},
		"a voter, and learners with it":   {5, five[:3], []string{"a", "d", "e"}, false},
		"two voters, and a learner":       {5, five[:3], []string{"a", "b", "d"}, true},
		"all voters of seven masters":     {7, five, five, true},
		"three voters of seven masters":   {7, five, five[:3], false},
		"three voters and one that isn't": {7, five, []string{"a", "b", "c", "f"}, true},
	} {
		h := holding{reachable: c.reachable, voters: c.voters}
		for _, node := range c.holders {
			h.add(node)
		}
		if h.enough() != c.enough {
			t.Errorf("%s: got %v, want %v", name, h.enough(), c.enough)
		}
	}
}
