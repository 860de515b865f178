package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"clustermaster/config"
)

// TestOutputterEnds closes outputters whose interpreter hangs.
func TestOutputterEnds(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := &outputters{conf: &config.Options{}, stderr: io.Discard}
	o.close() // of one that was not needed
	if err := o.start(python); err != nil {
		t.Fatal(err)
	}
	o.close()
	if err := syscall.Kill(o.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is there after the command: %v", err)
	}
}
