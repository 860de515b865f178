package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// steps is an orchestration that leaves a mark at each step. MARKS is the folder of the marks.
const steps = `
{% for n in ['one', 'two', 'three'] %}
{{ n }}:
  cmd.run:
    - name: {{ pillar.get(n, 'true') }}; touch MARKS/{{ n }}
{% endfor %}
`

// TestPausedFromOtherMasters: orders from other masters reach an orchestration: to pause, resume
// and end. An orchestration whose salt-run is interrupted ends as well.
func TestPausedFromOtherMasters(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Extra: "python_host: " + // for cmd.run
		filepath.Join(Venvs(t), "salt-3008.3", "bin", "python3") + "\n"})
	c.StartMasters(t)
	c.WaitReady(t, 60*time.Second, c.Masters...)
	runs, second, third := c.Masters[0], c.Masters[1], c.Masters[2]
	marks := t.TempDir()
	if err := os.WriteFile(filepath.Join(runs.Dir, "srv", "steps.sls"),
		[]byte(strings.ReplaceAll(steps, "MARKS", marks)), 0o644); err != nil {
		t.Fatal(err)
	}
	marked := func(name string) error {
		_, err := os.Stat(filepath.Join(marks, name))
		return err
	}
	clean := func() {
		for _, name := range []string{"one", "two", "three"} {
			_ = os.Remove(filepath.Join(marks, name))
		}
	}
	must := func(m *Master, args ...string) {
		if r := m.Runner(t, args...); r.Code != 0 {
			t.Fatalf("%s: %v", m.ID, r)
		}
	}
	start := func(jid string, args ...string) chan Result {
		ended := make(chan Result, 1)
		go func() {
			r, err := run(runs.test, runs.programs.Run,
				append([]string{"-c", runs.ConfDir, "--jid", jid, "state.orchestrate", "steps"},
					args...)...)
			if err != nil {
				r.Stderr += err.Error()
			}
			ended <- r
		}()
		return ended
	}

	const waits, ends = "20260101000000000001", "20260101000000000002"
	must(second, "state.pause", waits, "two")
	ended := start(waits)
	Eventually(t, 30*time.Second, "the first step", func() error { return marked("one") })
	must(third, "cache.fetch", "state_pause", waits) // by now the second step would be done
	if marked("two") == nil {
		t.Error("it did not wait")
	}
	must(third, "state.resume", waits)
	if r := <-ended; r.Code != 0 || marked("three") != nil {
		t.Errorf("it did not go on: %v", r)
	}

	clean()
	must(third, "state.soft_kill", ends, "two")
	if r := <-start(ends); r.Code != 0 || marked("one") != nil || marked("two") == nil ||
		!strings.Contains(r.Stdout, "Total states run:     1") {
		t.Errorf("it did not end before the second step: %v", r)
	}
	Eventually(t, 10*time.Second, "nothing is left of it", func() error {
		if r := second.Runner(t, "cache.list", "state_pause",
			"--out=json"); strings.Contains(r.Stdout, ends) || strings.Contains(r.Stdout, waits) {
			return errors.New(r.Stdout)
		}
		return nil
	})

	clean()
	cmd := exec.Command(runs.programs.Run, "-c", runs.ConfDir, "state.orchestrate", "steps",
		"pillar={two: sleep 600}")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 30*time.Second, "the first step", func() error { return marked("one") })
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil { // Salt's salt-run ends with 0 too
		t.Errorf("an interrupted orchestration: %v", err)
	}
	Eventually(t, 30*time.Second, "the end on the master", func() error {
		if r := runs.Runner(t, "jobs.master", "--out=json"); strings.Contains(r.Stdout,
			"state.orchestrate") {
			return fmt.Errorf("still running: %s", r.Stdout)
		}
		return nil
	})
	if marked("three") == nil {
		t.Error("it went on")
	}
}
