package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
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

// TestPrinterReadsTheFile: options of the configuration that decide how results look.
func TestPrinterReadsTheFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		extra    map[string]any
		terminal bool
		colors   bool
		exclude  []string
		terse    []string
	}{
		{map[string]any{"force_color": true, "no_color": true}, false, true, nil, nil},
		{map[string]any{"no_color": true}, true, false, nil, nil},
		{map[string]any{}, true, true, nil, nil},
		{map[string]any{}, false, false, nil, nil},
		{map[string]any{"state_output_exclude": "a, b", "state_output_terse": []any{"c"}}, false, false,
			[]string{"a", "b"}, []string{"c"}},
	} {
		env := Env{Terminal: c.terminal}
		p, err := env.printer(values{}, &config.Options{Color: true, Extra: c.extra})
		if err != nil || p.opts.Color != c.colors || !slices.Equal(p.opts.StateExclude, c.exclude) ||
			!slices.Equal(p.opts.StateTerse, c.terse) {
			t.Errorf("%v, terminal %v: %+v, %v", c.extra, c.terminal, p.opts, err)
		}
	}
}
