package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestWrongClock moves the clock of one of three masters by an hour and a day, forwards and
// backwards, while it follows and while it leads. The others write and run their schedule as
// before, the returns that come through the master are kept, and cluster.health names it.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	ours := Ours(t)
	c := NewCluster(t, ClusterOptions{Programs: ours,
		Extra: "auto_accept: True\nkeep_jobs_seconds: 7200\n" +
			"schedule:\n  often: {function: test.stdout_print, seconds: 2}\n"})
	bad, good := c.Masters[2], c.Masters[0]
	file := filepath.Join(t.TempDir(), "clock")
	set := func(off string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(off), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	set("1h") // wrong from the start
	wrapped := ours
	wrapped.Master = filepath.Join(t.TempDir(), "salt-master")
	script := fmt.Sprintf("#!/bin/sh\nCLUSTERMASTER_CLOCK=%s exec %s \"$@\"\n", file, ours.Master)
	if err := os.WriteFile(wrapped.Master, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	bad.Use(wrapped)
	c.StartMasters(t)
	minion := NewMinion(t, c.Dir, MinionOptions{ID: "minion", Release: "3008.3", Master: bad.Addr})
	minion.Run(t)
	Eventually(t, 60*time.Second, "the minion answers", func() error {
		if ids, r := good.Ping(t); len(ids) != 1 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	n := 0
	check := func(off, says string) {
		t.Helper()
		set(off)
		for _, m := range c.Masters {
			Eventually(t, 15*time.Second, m.ID+" says that the clock is off by "+off, func() error {
				r := m.Runner(t, "cluster.health")
				if r.Code != 1 || !strings.Contains(r.Stdout, bad.ID+" has a clock that is "+says+
					" those of the others") {
					return fmt.Errorf("%v", r)
				}
				return nil
			})
		}
		// each overwrites what the one before wrote
		for _, writer := range []*Master{bad, good, c.Masters[1]} {
			n++
			value := fmt.Sprintf("value-%d", n)
			if r := writer.Runner(t, "cache.store", "clock", "key", value); r.Code != 0 {
				t.Fatalf("with %s: %v", off, r)
			}
			for _, reader := range c.Masters {
				if r := reader.Runner(t, "cache.fetch", "clock",
					"key"); strings.TrimSpace(r.Stdout) != value {
					t.Errorf("with %s: %s wrote %s, %s reads\n%v", off, writer.ID, value,
						reader.ID, r)
				}
			}
		}
		for _, from := range []*Master{bad, good} {
			said := fmt.Sprintf("%s through %s with %s", from.ID, bad.ID, off)
			jid := job(t, from, "*", "test.echo", said)
			for _, m := range c.Masters {
				Eventually(t, 20*time.Second, "the return of "+jid+" is kept",
					func() error { return hasReturns(t, m, jid, said, []string{minion.ID}) })
			}
		}
		leader := c.Leader(t, good)
		before := scheduled(t, leader)
		Eventually(t, 15*time.Second, "the schedule of "+leader.ID+" goes on", func() error {
			if now := scheduled(t, leader); now < before+2 {
				return fmt.Errorf("%v runs after %v", now, before)
			}
			return nil
		})
	}
	for _, leads := range []*Master{bad, good} {
		Eventually(t, 30*time.Second, leads.ID+" leads", func() error {
			if r := good.Runner(t, "cluster.transfer_leader", leads.ID); r.Code != 0 {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
		check("1h", "1h0m0s ahead of")
		check("24h", "24h0m0s ahead of")
		check("-24h", "24h0m0s behind")
	}
	set("0s")
	Eventually(t, 15*time.Second, "all is well", func() error {
		if r := good.Runner(t, "cluster.health"); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	for _, m := range c.Masters {
		if logged(m.Log, "AES key rotated") == nil {
			t.Errorf("%s rotated the AES key early", m.ID)
		}
		if m != bad {
			if err := logged(m.Log, "a master's clock is wrong"); err != nil {
				t.Error(err)
			}
		}
	}
}

var scheduleRuns = regexp.MustCompile(`(?m)^clustermaster_schedule_runs_total\S* (\d+)$`)

// scheduled counts the runs of a master's schedule that have ended.
func scheduled(t *testing.T, m *Master) int {
	t.Helper()
	sum := 0
	for _, f := range scheduleRuns.FindAllStringSubmatch(m.Metrics(t), -1) {
		n, _ := strconv.Atoi(f[1])
		sum += n
	}
	return sum
}
