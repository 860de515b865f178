package knownbug

import "testing"

// TestOff: a build without the tag has none of the bugs.
func TestOff(t *testing.T) {
	t.Parallel()
	for _, b := range All {
		if Is(b) {
			t.Errorf("%s is in a build without the tag knownbugs", b)
		}
	}
}
