//go:build knownbugs

package sim

import (
	"flag"
	"strings"
	"testing"

	"clustermaster/test/knownbug"
)

var bug = flag.String("bug", "", "look for this bug alone")

// TestKnownBug puts known bugs back one by one, and counts the seeds until a run finds each. A bug
// that no run finds fails the test.
func TestKnownBug(t *testing.T) {
	*scenes = true
	most := uint64(1000)
	if *seeds > 0 {
		most = uint64(*seeds)
	}
	for _, b := range knownbug.All {
		if *bug != "" && string(b) != *bug {
			continue
		}
		t.Run(string(b), func(t *testing.T) {
			knownbug.Put(b)
			defer knownbug.Put("")
			for seed := uint64(1); seed <= most; seed++ {
				wrong := simulate(t, seed).verdict()
				if len(wrong) > 0 && !strings.HasPrefix(wrong[0], "too little") {
					knownbug.Put("")
					if without := simulate(t, seed).verdict(); len(without) > 0 {
						t.Errorf("seed %d fails without %s too: %s", seed, b, without[0])
					}
					t.Logf("%s: found by seed %d: %s (%d faults)", b, seed, wrong[0], len(wrong))
					return
				}
			}
			t.Errorf("%s: not found by %d seeds", b, most)
		})
	}
}
