package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// WithVariable returns the programs with a master that has a variable in its environment. The value
// has no blanks.
func (p Programs) WithVariable(t testing.TB, name, value string) Programs {
	t.Helper()
	script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", name, value, p.Master)
	p.Master = filepath.Join(t.TempDir(), "salt-master")
	if err := os.WriteFile(p.Master, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}
