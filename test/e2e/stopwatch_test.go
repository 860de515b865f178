package e2e

import (
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestUndisturbed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ passed, others, want time.Duration }{
		{10 * time.Second, 0, 10 * time.Second},
		{10 * time.Second, 4 * time.Second, 6 * time.Second},
		{10 * time.Second, 10 * time.Second, 2500 * time.Millisecond},
		{10 * time.Second, -time.Second, 10 * time.Second}, // figures from different moments
	} {
		if got := undisturbed(tt.passed, tt.others); got != tt.want {
			t.Errorf("%v with %v of others: %v, want %v", tt.passed, tt.others, got, tt.want)
		}
	}
}

// TestOwnTimeCounts: time that a test's own processes burn counts as its own, while they run and
// afterwards, and as no other test's. So does that of processes which those give a group of their
// own, as masters do with git.
func TestOwnTimeCounts(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"its group":     "while :; do :; done",
		"another group": `setsid sh -c "while kill -0 $$ 2>/dev/null; do :; done" & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			timeOf := func(test string) time.Duration { return testTime(test, processes(0)) }
			own, other := timeOf(testOf(t)), timeOf("TestOfSomebody")
			p := &Process{Name: "burner", Output: filepath.Join(t.TempDir(), "output")}
			p.Start(t, "/bin/sh", "-c", script)
			const burnt = 500 * time.Millisecond
			used := func() time.Duration { return timeOf(testOf(t)) - own - (timeOf("TestOfSomebody") - other) }
			Eventually(t, 60*time.Second, "it has burnt", func() error {
				if used() < burnt {
					return errors.New("not yet")
				}
				return nil
			})
			before := used()
			p.Kill(t)
			if after := used(); after < before-100*time.Millisecond && name == "its group" {
				t.Errorf("%v while it ran, %v afterwards", before, after)
			}
			if m := readMachine(); m.processors == 0 || m.busy < burnt || m.running == 0 {
				t.Errorf("the machine: %+v", m)
			}
		})
	}
}
