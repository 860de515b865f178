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
	t.Run("gathered", func(t *testing.T) { tooMuchToGather(t, c) })
	t.Run("backup", func(t *testing.T) { largeBackup(t, c.Masters[0]) })
	for i, m := range c.Masters {
		if !m.Running() || m.PID() != pids[i] {
			t.Errorf("%s has ended", m.ID)
		}
	}
}

// tooMuchToGather has runners and orchestrations gather more than a master may hold.
func tooMuchToGather(t *testing.T, c *cluster) {
	m := c.Masters[0]
	const ids = "real-*"
	for _, release := range e2e.Releases {
		e2e.NewMinion(t, c.Dir, e2e.MinionOptions{ID: "real-" + strings.ReplaceAll(release, ".", "-"),
			Release: release, Master: m.Addr,
			Extra: "max_event_size: 100000000\n"}).Run(t) // a minion trims larger returns
	}
	e2e.Eventually(t, healed, "all minions answer", func() error {
		if r := m.Salt(t, ids, "test.ping"); strings.Count(r.Stdout, "True") != len(e2e.Releases) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	const large, refusal = `head -c 12000000 /dev/zero | tr '\0' x`, "too much for the memory of this master"
	refused(t, m.Runner(t, "salt.execute", ids, "cmd.run", large), refusal)
	for name, more := range map[string]string{"large": "", "batch": "    - batch: 2\n"} {
		sls := "run:\n  salt.function:\n    - name: cmd.run\n    - tgt: '" + ids + "'\n    - arg: [\"" +
			strings.ReplaceAll(large, `\`, `\\`) + "\"]\n" + more
		if err := os.WriteFile(filepath.Join(m.Dir, "srv", name+".sls"), []byte(sls), 0o644); err != nil {
			t.Fatal(err)
		}
		refused(t, m.Runner(t, "state.orchestrate", name), refusal)
	}
	succeeds(t, m.Salt(t, ids, "mine.send", "big", "mine_function=cmd.run",
		"cmd=head -c 12000000 /dev/zero"))
	refused(t, m.Runner(t, "mine.get", ids, "big"), refusal)
	refused(t, m.Runner(t, "cache.mine", ids), refusal)
}

// largeBackup writes and reads a backup with a job that is larger than a master may hold.
func largeBackup(t *testing.T, m *e2e.Master) {
	dir := t.TempDir()
	phrase, file := filepath.Join(dir, "phrase"), filepath.Join(dir, "all.sealed")
	if err := os.WriteFile(phrase, []byte("correct horse battery"), 0o600); err != nil {
		t.Fatal(err)
	}
	succeeds(t, m.Runner(t, "cluster.backup", file, "passphrase_file="+phrase, "jobs=True"))
	succeeds(t, m.Runner(t, "cluster.restore", file, "passphrase_file="+phrase, "test=True"))
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
