package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
)

// memoryGroup is a control group that bounds memory.
type memoryGroup struct{ dir, peak string }

func newMemoryGroup(t *testing.T, bytes int) memoryGroup {
	t.Helper()
	root, limit, peak := "/sys/fs/cgroup", "memory.max", "memory.peak"
	if _, err := os.Stat(root + "/memory/memory.limit_in_bytes"); err == nil { // version 1
		root, limit, peak = root+"/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"
	}
	dir, err := os.MkdirTemp(root, "clustermaster-")
	g := memoryGroup{dir, peak}
	if err == nil {
		t.Cleanup(func() {
			e2e.Eventually(t, healed, "the control group is empty", func() error { return os.Remove(g.dir) })
		})
		err = os.WriteFile(filepath.Join(g.dir, limit), []byte(strconv.Itoa(bytes)), 0o600)
	}
	if err != nil {
		t.Skip("needs root and a control group for memory")
	}
	return g
}

func (g memoryGroup) used(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, g.peak))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// highstate is what a minion returns for so many states, of some 300 bytes each.
func highstate(states int) value.Map {
	var all value.Map
	for i := range states {
		all = append(all, value.Pair{
			Key: fmt.Sprintf("file_|-/etc/conf.d/%d.conf_|-/etc/conf.d/%d.conf_|-managed", i, i),
			Value: value.Map{{Key: "name", Value: fmt.Sprintf("/etc/conf.d/%d.conf", i)}, {Key: "result", Value: true},
				{Key: "comment", Value: fmt.Sprintf("File /etc/conf.d/%d.conf is in the correct state", i)},
				{Key: "changes", Value: value.Map{}}, {Key: "__sls__", Value: "conf"}, {Key: "__id__", Value: "files"},
				{Key: "__run_num__", Value: int64(i)}, {Key: "duration", Value: 1.5}, {Key: "start_time", Value: "12:00:00.000000"}}})
	}
	return all
}

// TestLittleMemory: all minions of masters of 512 MB return large results at once, many times what
// the masters have. They take some after the other, the minions try again as Salt's do, and the
// kernel ends nothing. Small results are taken meanwhile. Who asks for all results is refused.
func TestLittleMemory(t *testing.T) {
	if !e2e.MemoryCounts(t) {
		return
	}
	const limit, minions, states = 512 << 20, 60, 40000
	c := &cluster{Cluster: e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3, Extra: "auto_accept: True\n"})}
	var groups []memoryGroup
	var pids []int
	for _, m := range c.Masters {
		g := newMemoryGroup(t, limit)
		m.Use(startedAfter(t, fmt.Sprintf("echo $$ > %s/cgroup.procs", g.dir)))
		groups = append(groups, g)
	}
	c.StartMasters(t)
	for i, m := range c.Masters {
		pids = append(pids, m.PID())
		t.Logf("%s uses %d MB", m.ID, groups[i].used(t)>>20)
	}
	large, jid := highstate(states), "20260101000000000000"
	var all sync.WaitGroup
	var taken, again atomic.Int64
	ctx := within(t, 3*time.Minute)
	for n := range minions {
		all.Go(func() {
			one, at := newMinion(t, fmt.Sprintf("large-%d", n)), c.Masters[n%3]
			for returnsTo(ctx, one, at, jid, large) != nil {
				again.Add(1)
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Second + rand.N(2*time.Second)):
				}
			}
			taken.Add(1)
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	small := newMinion(t, "small")
	for n, over := 0, false; !over; n++ {
		if err := returnsTo(ctx, small, c.Masters[n%3], fmt.Sprintf("20260102%012d", n), true); err != nil {
			t.Errorf("a small return to %s: %v", c.Masters[n%3].ID, err)
		}
		select {
		case <-done:
			over = true
		case <-time.After(time.Second):
		}
	}
	t.Logf("%d returns taken, %d sent again", taken.Load(), again.Load())
	if taken.Load() != minions {
		t.Errorf("%d of %d returns were taken", taken.Load(), minions)
	}
	for i, m := range c.Masters {
		if !m.Running() || m.PID() != pids[i] {
			t.Errorf("%s has ended", m.ID)
			continue
		}
		t.Logf("%s used at most %d MB, its group %d MB with the files in the page cache", m.ID,
			e2e.ProcNumber(t, pids[i], "VmHWM")>>10, groups[i].used(t)>>20)
	}
	c.WaitReady(t, healed, c.Masters...)

	// One of them can be shown, all are too much.
	const one = "20260103000000000000"
	if err := returnsTo(within(t, time.Minute), small, c.Masters[0], one, large); err != nil {
		t.Error(err)
	}
	r := c.Masters[0].Runner(t, "jobs.lookup_jid", one, "--out=json")
	if r.Code != 0 || len(r.Stdout) < 300*states {
		t.Errorf("one large result: exit code %d, %d bytes, %.300s", r.Code, len(r.Stdout), r.Stderr)
	}
	refused(t, c.Masters[0].Runner(t, "jobs.lookup_jid", jid), "too much for the memory of this master")
	if !c.Masters[0].Running() || c.Masters[0].PID() != pids[0] {
		t.Error("a look at a large job has ended the master")
	}
}

// returnsTo sends one return, after a sign-in if the minion has no session, with a minion's
// patience.
func returnsTo(ctx context.Context, one *minion, at *e2e.Master, jid string, val any) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	if !one.answer.Accepted {
		word, err := one.signIn(ctx, at)
		if err != nil || word != "accepted" {
			return fmt.Errorf("signs in: %s, %w", word, err)
		}
	}
	_, err := one.ask(ctx, at, one.returned(jid, "state.apply", val))
	return err
}
