package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCacheBanks: every master fetches what cache.store acknowledged, whichever one of three is
// dead. The dead one does too when it is back.
func TestCacheBanks(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{})
	c.StartMasters(t)
	var want []string // the keys of bank shared; each holds its own name
	store := func(m *Master, keys ...string) {
		for _, key := range keys {
			if r := m.Runner(t, "cache.store", "shared", key, "value of "+key); r.Code != 0 ||
				r.Stdout+r.Stderr != "None\n" {
				t.Errorf("store %s on %s: %v", key, m.ID, r)
			}
			want = append(want, key)
		}
	}
	check := func(masters ...*Master) {
		t.Helper()
		slices.Sort(want)
		for _, m := range masters {
			var got []string
			if err := m.RunnerJSON(t, &got, "cache.list", "shared"); err != nil ||
				!slices.Equal(got, want) {
				t.Errorf("%s lists %v, want %v; %v", m.ID, got, want, err)
			}
			for _, key := range want {
				if r := m.Runner(t, "cache.fetch", "shared", key); r.Stdout != "value of "+
					key+"\n" {
					t.Errorf("fetch %s on %s: %v", key, m.ID, r)
				}
			}
		}
	}
	for i, m := range c.Masters {
		store(m, fmt.Sprintf("first%d", i), fmt.Sprintf("second%d", i))
	}
	check(c.Masters...)
	for i, dead := range c.Masters {
		dead.Kill(t)
		alive := slices.DeleteFunc(slices.Clone(c.Masters),
			func(m *Master) bool { return m == dead })
		check(alive...)
		store(alive[0], fmt.Sprintf("while%d", i))
		gone := fmt.Sprintf("second%d", i)
		if r := alive[1].Runner(t, "cache.flush", "shared", gone); r.Stdout != "True\n" {
			t.Errorf("flush with %s dead: %v", dead.ID, r)
		}
		want = slices.DeleteFunc(want, func(key string) bool { return key == gone })
		dead.Run(t)
		c.WaitReady(t, 60*time.Second, c.Masters...)
		check(c.Masters...)
	}
	if r := c.Masters[1].Runner(t, "cache.flush", "shared"); r.Stdout != "True\n" {
		t.Errorf("flush of the bank: %v", r)
	}
	for _, m := range c.Masters {
		if r := m.Runner(t, "cache.list", "shared"); r.Code != 0 ||
			strings.Contains(r.Stdout, "-") {
			t.Errorf("%s after the flush: %v", m.ID, r)
		}
	}
}
