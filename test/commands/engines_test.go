package commands

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clustermaster/test/e2e"
)

// engineFiles are engines of a site, and a runner that one of them calls.
var engineFiles = map[string]string{
	"srv/_engines/tick.py": `
import logging
import os
import time

import salt.utils.event

log = logging.getLogger(__name__)


def start(path):
    log.warning("tick begins on %s", __opts__["id"])
    events = salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=False)
    while True:
        with open(path, "a") as out:
            out.write(f"{__opts__['id']} {os.getpid()} {time.monotonic()}\n")
        events.fire_event({"n": 1}, "site/tick/" + __opts__["id"])
        time.sleep(0.05)
`,
	"engines/caller.py": `
import salt.runner


def start(path):
    client = salt.runner.RunnerClient(__opts__)
    assert __runners__["test.arg"](1)["args"] == [1]
    assert __salt__["test.echo"]("x") == "x"
    while True:
        client.cmd("mark.note", [path, __opts__["id"]], print_event=False)
`,
	"runners/mark.py": `
import os
import time


def note(path, text):
    with open(path, "a") as out:
        out.write(f"{text} {os.getppid()} {time.monotonic()}\n")
`,
	"engines/falls.py": `
def start():
    raise ValueError("it fell")
`,
	"engines/leaves.py": `
import os


def start():
    os._exit(3)
`,
	"engines/returns.py": `
def start():
    return object()
`,
}

// stamp is a line written by an engine: its process, and the time by the machine's clock.
type stamp struct {
	id, pid string
	at      float64
}

func stampsOf(t *testing.T, path string) (out []stamp) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 3 {
			continue // the last line is still being written
		}
		at, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, stamp{words[0], words[1], at})
	}
	return out
}

// uptime is the clock of the stamps.
func uptime(t *testing.T) float64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return float64(now.Nano()) / 1e9
}

// oneAtATime returns an error for two processes whose times overlap.
func oneAtATime(all []stamp) error {
	first, last := map[string]float64{}, map[string]float64{}
	for _, s := range all {
		who := s.id + " " + s.pid
		if _, known := first[who]; !known {
			first[who] = s.at
		}
		last[who] = s.at
	}
	for a := range first {
		for b := range first {
			if a < b && first[a] <= last[b] && first[b] <= last[a] {
				return fmt.Errorf("process %s from %f to %f and process %s from %f to %f", a,
					first[a], last[a], b, first[b], last[b])
			}
		}
	}
	return nil
}

// TestEngines runs engines of a site, freezes the leader, lets it continue, and kills the next
// leader.
func TestEngines(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3})
	file := func(name string) string { return filepath.Join(c.Dir, name) }
	for _, m := range c.Masters {
		for name, text := range engineFiles {
			path := filepath.Join(m.Dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		m.Configure(t, m.Config(t)+strings.NewReplacer("DIR", m.Dir, "SHARED", c.Dir, "PYTHON",
			filepath.Join(e2e.Venvs(t), "salt-"+reference, "bin", "python3")).Replace(`
python_host: PYTHON
engines_dirs: [DIR/engines]
runner_dirs: [DIR/runners]
engines_everywhere: [every]
engines:
  - nosuch
  - tick: {path: SHARED/ticks}
  - caller: {path: SHARED/calls}
  - every: {engine_module: tick, path: SHARED/every}
  - falls
  - leaves
  - returns
`))
	}
	c.StartMasters(t)
	leader := c.Leader(t, c.Masters[0])
	log := func(m *e2e.Master) string {
		b, err := os.ReadFile(m.Log)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	lines := func(m *e2e.Master, words ...string) (n int) {
	next:
		for line := range strings.Lines(log(m)) {
			for _, word := range words {
				if !strings.Contains(line, word) {
					continue next
				}
			}
			n++
		}
		return n
	}
	says := func(m *e2e.Master, words ...string) {
		t.Helper()
		e2e.Eventually(t, 60*time.Second, fmt.Sprintf("%s says %q", m.ID, words), func() error {
			if lines(m, words...) == 0 {
				return errors.New("it does not")
			}
			return nil
		})
	}
	// by waits until an engine has written on a master after a given time.
	by := func(m *e2e.Master, name string, after float64) {
		t.Helper()
		e2e.Eventually(t, 60*time.Second, name+" of "+m.ID, func() error {
			all := stampsOf(t, file(name))
			if len(all) == 0 || all[len(all)-1].id != m.ID || all[len(all)-1].at < after {
				return fmt.Errorf("%d lines", len(all))
			}
			return nil
		})
	}

	says(leader, "engine not started", "engine=nosuch", "'nosuch.start' is not available")
	says(leader, "engine not started", "engine=tick")
	if r := leader.Runner(t, "saltutil.sync_engines"); r.Code != 0 {
		t.Fatalf("sync: %v", r)
	}
	by(leader, "ticks", 0)
	by(leader, "calls", 0)
	says(leader, "tick begins on "+leader.ID)
	e2e.Eventually(t, 60*time.Second, "an engine of every master", func() error {
		on := map[string]bool{}
		for _, s := range stampsOf(t, file("every")) {
			on[s.id] = true
		}
		if len(on) != len(c.Masters) {
			return fmt.Errorf("on %v", on)
		}
		return nil
	})
	for _, pause := range []string{"again_in=1s", "again_in=2s", "again_in=4s"} {
		says(leader, "engine raised an exception", "engine=falls", pause, "ValueError: it fell",
			"engines/falls.py")
		says(leader, "engine ended", "engine=leaves", pause, "exit status 3", "engines/leaves.py")
		says(leader, "engine ended by itself", "engine=returns", pause)
	}
	if n := lines(leader, "engine not started", "engine=nosuch"); n != 1 {
		t.Errorf("an unknown engine has %d lines", n)
	}
	if r := leader.Runner(t, "python.status"); strings.Count(r.Stdout, "runs\n") != 3 ||
		!strings.Contains(r.Stdout, "ValueError") && !strings.Contains(r.Stdout, "it fell") {
		t.Errorf("python.status: %v", r)
	}
	for _, m := range c.Others(leader) {
		if lines(m, "engine is started", "engine=tick") > 0 {
			t.Errorf("%s does not lead and started an engine", m.ID)
		}
	}

	r := c.Others(leader)[0].Runner(t, "state.event", "site/tick/"+leader.ID, "count=2")
	if r.Code != 0 || strings.Count(r.Stdout, "site/tick/"+leader.ID) != 2 {
		t.Errorf("events of an engine: %v", r)
	}
	leader.Freeze(t)
	frozen := uptime(t)
	second := c.Leader(t, c.Others(leader)[0])
	e2e.Eventually(t, 60*time.Second, "another leader", func() error {
		if second = c.Leader(t, c.Others(leader)[0]); second == leader {
			return errors.New("the frozen one is said to lead")
		}
		return nil
	})
	by(second, "ticks", frozen)
	by(second, "calls", frozen)
	thawed := uptime(t)
	leader.Thaw(t)
	says(leader, "engines stopped: this master no longer leads")
	says(leader, "an event of an engine is refused", "site/tick/"+leader.ID)
	by(second, "calls", uptime(t))
	for _, s := range stampsOf(t, file("calls")) {
		if s.id == leader.ID && s.at > thawed {
			t.Errorf("an order of the engine of %s was carried out %.2f s after that stood still",
				s.id, s.at-frozen)
		}
	}

	c.WaitReady(t, 60*time.Second, c.Masters...)
	second.Kill(t)
	killed := uptime(t)
	e2e.Eventually(t, 60*time.Second, "a third one runs the engine", func() error {
		all := stampsOf(t, file("ticks"))
		if last := all[len(all)-1]; last.id == second.ID || last.at < killed+1 {
			return fmt.Errorf("last by %s", last.id)
		}
		return nil
	})
	if err := oneAtATime(stampsOf(t, file("ticks"))); err != nil {
		t.Errorf("two engines at once: %v", err)
	}
}
