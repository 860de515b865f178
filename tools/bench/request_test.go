package bench

import "testing"

// TestNumberedFiles names each file of a numbered set once before it begins again.
func TestNumberedFiles(t *testing.T) {
	t.Parallel()
	j := job{file: "d{50}/f{20}.sls"}
	seen := make(map[string]bool)
	for range 1000 {
		seen[j.path()] = true
	}
	if len(seen) != 1000 || !seen["d1/f1.sls"] || !seen["d50/f20.sls"] {
		t.Errorf("%d of 1000 files", len(seen))
	}
	if again := j.path(); !seen[again] {
		t.Errorf("then %q", again)
	}
	if got := (&job{file: "a{}b"}).path(); got != "a{}b" {
		t.Errorf("got %q", got)
	}
}
