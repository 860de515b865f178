package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAwayTooLong keeps one of three masters away for longer than tombstones live, by the clocks of
// all three. What was deleted meanwhile does not come back with it; everything else is on all
// masters.
func TestAwayTooLong(t *testing.T) {
	long(t)
	t.Parallel()
	ours := Ours(t)
	clock := filepath.Join(t.TempDir(), "clock")
	set := func(off string) {
		t.Helper()
		if err := os.WriteFile(clock+".new", []byte(off), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(clock+".new", clock); err != nil {
			t.Fatal(err)
		}
	}
	set("0s")
	wrapped := ours
	wrapped.Master = filepath.Join(t.TempDir(), "salt-master")
	script := fmt.Sprintf("#!/bin/sh\nCLUSTERMASTER_CLOCK=%s exec %s \"$@\"\n", clock, ours.Master)
	if err := os.WriteFile(wrapped.Master, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	c := NewCluster(t, ClusterOptions{Programs: wrapped, Extra: "ring_tombstone_seconds: 600\n"})
	c.StartMasters(t)
	first, away := c.Masters[0], c.Masters[2]
	const n = 12
	key := func(i int) string { return fmt.Sprintf("key%02d", i) }
	for i := range n {
		if r := first.Runner(t, "cache.store", "bank", key(i), "value"); r.Code != 0 {
			t.Fatalf("%v", r)
		}
	}
	c.WaitReady(t, time.Minute, c.Masters...)
	away.Kill(t)
	for i := range n / 2 {
		if r := first.Runner(t, "cache.flush", "bank", key(i)); r.Code != 0 {
			t.Fatalf("%v", r)
		}
	}
	look := func(when string) {
		t.Helper()
		for _, m := range c.Running() {
			for i := range n {
				r := m.Runner(t, "cache.fetch", "bank", key(i))
				if has := strings.Contains(r.Stdout, "value"); has != (i >= n/2) {
					t.Errorf("%s, %s by %s: there %v\n%v", when, key(i), m.ID, has, r)
				}
			}
		}
	}
	look("while one is away")
	set("3h") // tombstones end with their bucket of one hour
	// Masters check once a minute what has ended.
	Eventually(t, 3*time.Minute, "the tombstones are gone", func() error {
		for _, m := range c.Masters[:2] {
			if b, err := os.ReadFile(m.Log); err != nil ||
				!strings.Contains(string(b), "tombstones removed; masters that are away") {
				return fmt.Errorf("%s has them: %v", m.ID, err)
			}
		}
		return nil
	})
	away.Run(t)
	c.WaitReady(t, time.Minute, away)
	look("after it came back")
	Eventually(t, time.Minute, "its log says that it begins anew", func() error {
		b, err := os.ReadFile(away.Log)
		if err == nil && !strings.Contains(string(b),
			"deletions were forgotten while this master was away") {
			err = fmt.Errorf("no such line")
		}
		return err
	})
	if aside, _ := filepath.Glob(filepath.Join(away.Dir, "cache", "clustermaster",
		"ring.damaged-*")); len(aside) != 1 {
		t.Errorf("kept aside: %v", aside)
	}
	Eventually(t, time.Minute, "it is filled", func() error {
		b, err := os.ReadFile(away.Log)
		if err == nil && !strings.Contains(string(b), "the ring store has its records again") {
			err = fmt.Errorf("no such line")
		}
		return err
	})
	look("when it is filled")
}
