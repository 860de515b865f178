package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFaultsFit: what a fault changes stands in its file once. Whether a test finds it is the
// matter of make mutations.
func TestFaultsFit(t *testing.T) {
	t.Parallel()
	all, err := parse(table)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Errorf("%d faults", len(all))
	}
	for _, m := range all {
		b, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := strings.Count(string(b), m.from); n != 1 {
			t.Errorf("%s: %s has it %d times", m.name, m.file, n)
		}
	}
}
