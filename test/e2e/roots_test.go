package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const isolated = "cluster_isolated_filesystem: True\n"

// rootsReport is what cluster.sync_roots and cluster.roots_status report about a tree.
type rootsReport struct {
	Head      int    `json:"head"`
	Source    string `json:"source"`
	Published bool   `json:"published"`
	Items     int    `json:"items"`
	Peers     map[string]struct {
		Result  string              `json:"result"`
		Head    int                 `json:"head"`
		Behind  bool                `json:"behind"`
		Added   int                 `json:"added"`
		Changed int                 `json:"changed"`
		Deleted int                 `json:"deleted"`
		Bytes   int64               `json:"bytes"`
		Drifted int                 `json:"drifted"`
		Drift   []map[string]string `json:"drift"`
		KeptIn  []string            `json:"kept_in"`
		Changes []string            `json:"changes"`
		Error   string              `json:"error"`
	} `json:"peers"`
}

type rootsReports struct {
	File   rootsReport `json:"file_roots"`
	Pillar rootsReport `json:"pillar_roots"`
}

func srv(m *Master) string       { return filepath.Join(m.Dir, "srv") }
func pillarDir(m *Master) string { return filepath.Join(m.Dir, "pillar") }

// put writes files below a folder.
func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		full := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755),
			os.WriteFile(full, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// listing describes everything in a folder, except what is staged or set aside there.
func listing(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if d.Name() == ".clustermaster-staging" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, dir)
		what := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += strings.Replace(target, dir, "ROOT", 1)
		case info.Mode().IsRegular():
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			h := sha256.New()
			if _, err := io.Copy(h, f); err != nil {
				return err
			}
			what += hex.EncodeToString(h.Sum(nil)[:8])
		}
		out[rel] = what
		return nil
	})
	return out, err
}

// equalTrees returns nil if two folders hold the same.
func equalTrees(a, b string) error {
	la, err := listing(a)
	if err != nil {
		return err
	}
	lb, err := listing(b)
	if err != nil {
		return err
	}
	if maps.Equal(la, lb) {
		return nil
	}
	var diff []string
	for path, what := range la {
		if lb[path] != what {
			diff = append(diff, fmt.Sprintf("%q: %s and %s", path, what, lb[path]))
		}
	}
	for path, what := range lb {
		if _, ok := la[path]; !ok {
			diff = append(diff, fmt.Sprintf("%q: only %s", path, what))
		}
	}
	slices.Sort(diff)
	return fmt.Errorf("%s and %s differ in %d of %d: %s", a, b, len(diff), len(la),
		strings.Join(diff[:min(len(diff), 10)], "; "))
}

func syncRoots(t testing.TB, m *Master, args ...string) rootsReports {
	t.Helper()
	var r rootsReports
	if err := m.RunnerJSON(t, &r, append([]string{"cluster.sync_roots"}, args...)...); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRoots runs three masters that each have their own roots from the first start on.
func TestRoots(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Extra: isolated})
	put(t, srv(c.Masters[0]), map[string]string{"top.sls": "base: {}", "web/init.sls": "nginx"})
	put(t, pillarDir(c.Masters[0]), map[string]string{"top.sls": "base: {}"})
	put(t, srv(c.Masters[1]), map[string]string{"top.sls": "of master2", "extra.sls": "of master2"})
	c.StartMasters(t)

	for _, step := range []struct {
		name string
		run  func(*testing.T, *Cluster)
	}{
		{"FoundersRootsAreCopied", testFoundersRoots},
		{"SyncFromAnyMaster", testSyncRoots},
		{"TableAndExitCode", testRootsTable},
		{"DriftAndForce", testRootsDrift},
		{"TestShowsAndChangesNothing", testRootsTest},
		{"AwayPeerCatchesUp", testRootsAway},
		{"ManyOddFiles", testManyFiles},
		{"VanillaJoiner", testRootsJoiner},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, c) }) {
			break // the cluster is not as the next step expects it
		}
	}
}

func testFoundersRoots(t *testing.T, c *Cluster) {
	for _, m := range c.Masters[1:] {
		if err := equalTrees(pillarDir(c.Masters[0]), pillarDir(m)); err != nil {
			t.Error(err) // they were ready: the copy had ended before
		}
		b, err := os.ReadFile(filepath.Join(srv(m), "top.sls"))
		if err != nil || string(b) != "base: {}" {
			t.Errorf("%s: top.sls is %q, %v", m.ID, b, err)
		}
	}
	two := c.Masters[1]
	if b, err := os.ReadFile(filepath.Join(srv(two), "extra.sls")); err != nil ||
		string(b) != "of master2" {
		t.Errorf("the extra file: %q, %v", b, err)
	}
	kept, err := filepath.Glob(filepath.Join(srv(two), ".clustermaster-staging/kept/*/top.sls"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept aside: %v, %v", kept, err)
	}
	if b, err := os.ReadFile(kept[0]); err != nil || string(b) != "of master2" {
		t.Errorf("kept aside: %q, %v", b, err)
	}
}

func testSyncRoots(t *testing.T, c *Cluster) {
	one, two, three := c.Masters[0], c.Masters[1], c.Masters[2]
	r := syncRoots(t, two)
	if !r.File.Published || r.File.Head != 1 || r.File.Source != two.ID || r.Pillar.Head != 1 {
		t.Errorf("%+v", r)
	}
	for _, m := range []*Master{one, three} {
		if p := r.File.Peers[m.ID]; p.Result != "ok" || p.Added != 1 || p.Changed != 0 ||
			p.Deleted != 0 || p.Head != 1 {
			t.Errorf("%s: %+v", m.ID, p)
		}
		if err := equalTrees(srv(two), srv(m)); err != nil {
			t.Error(err)
		}
		if log := tail(m.Log, 1<<20); !strings.Contains(log,
			"state-sync file_roots installed 1 items") {
			t.Errorf("%s: no line in the log about it", m.ID)
		}
	}
	// What was deleted is deleted everywhere; only differences travel.
	if err := os.RemoveAll(filepath.Join(srv(one), "web")); err != nil {
		t.Fatal(err)
	}
	r = syncRoots(t, one, "roots=file")
	if p := r.File.Peers[three.ID]; p.Deleted != 2 || p.Bytes > 1000 || r.Pillar.Peers != nil {
		t.Errorf("%+v", r)
	}
	for _, m := range []*Master{two, three} {
		if err := equalTrees(srv(one), srv(m)); err != nil {
			t.Error(err)
		}
	}
	if r = syncRoots(t, three); r.File.Published || r.File.Head != 2 {
		t.Errorf("nothing changed: %+v", r)
	}
}

func testRootsTable(t *testing.T, c *Cluster) {
	one := c.Masters[0]
	put(t, srv(one), map[string]string{"a.sls": "a"})
	r := one.Runner(t, "cluster.sync_roots")
	if r.Code != 0 || !strings.HasPrefix(r.Stdout, "file_roots: head 3, published; 3 items, ") {
		t.Errorf("%v", r)
	}
	lines := strings.Split(r.Stdout, "\n")
	if len(lines) < 5 || strings.Join(strings.Fields(lines[1]),
		" ") != "peer result added changed deleted bytes seconds" ||
		strings.Join(strings.Fields(lines[2]), " ") != "master1 source - - - - -" ||
		!strings.HasPrefix(strings.Join(strings.Fields(lines[3]), " "), "master2 ok 1 0 0 ") {
		t.Errorf("%v", r)
	}
	for _, bad := range [][]string{{"roots=none"}, {"saltenv=nosuch"}} {
		if r := one.Runner(t, append([]string{"cluster.sync_roots"}, bad...)...); r.Code != 1 {
			t.Errorf("%v", r)
		}
	}
	r = one.Runner(t, "cluster.roots_status")
	if r.Code != 0 || !strings.Contains(r.Stdout, "file_roots: head 3, published by master1 at ") ||
		strings.Count(r.Stdout, " ok ") != 6 {
		t.Errorf("%v", r)
	}
}

func testRootsDrift(t *testing.T, c *Cluster) {
	one, two, three := c.Masters[0], c.Masters[1], c.Masters[2]
	put(t, srv(two), map[string]string{"a.sls": "by hand", "mine.sls": "by hand"})
	put(t, srv(one), map[string]string{"a.sls": "a 2", "b.sls": "b"})
	r := syncRoots(t, one, "roots=file")
	if p := r.File.Peers[two.ID]; p.Result != "drift" || p.Drifted != 2 || p.Added != 1 ||
		p.Drift[0]["item"] != "base:0 a.sls" || p.Drift[0]["what"] != "edited" {
		t.Errorf("%+v", p)
	}
	if b, _ := os.ReadFile(filepath.Join(srv(two), "a.sls")); string(b) != "by hand" {
		t.Errorf("a.sls is %q", b)
	}
	var st rootsReports
	if err := three.RunnerJSON(t, &st, "cluster.roots_status"); err != nil {
		t.Fatal(err)
	}
	if st.File.Peers[two.ID].Drifted != 2 || st.File.Peers[one.ID].Drifted != 0 ||
		st.File.Peers[two.ID].Head != r.File.Head {
		t.Errorf("status %+v", st)
	}
	r = syncRoots(t, one, "force=True")
	p := r.File.Peers[two.ID]
	if err := equalTrees(srv(one), srv(two)); err != nil || p.Result != "ok" || len(p.KeptIn) != 1 {
		t.Fatalf("%v, %+v", err, p)
	}
	if b, _ := os.ReadFile(filepath.Join(p.KeptIn[0], "mine.sls")); string(b) != "by hand" {
		t.Errorf("kept aside: %q", b)
	}
}

func testRootsTest(t *testing.T, c *Cluster) {
	one, two := c.Masters[0], c.Masters[1]
	put(t, srv(one), map[string]string{"b.sls": "b 2", "c.sls": "c"})
	before, err := listing(srv(two))
	if err != nil {
		t.Fatal(err)
	}
	r := syncRoots(t, one, "test=True", "roots=file")
	if p := r.File.Peers[two.ID]; r.File.Published ||
		!slices.Equal(p.Changes, []string{"~ base:0 b.sls", "+ base:0 c.sls"}) {
		t.Errorf("%+v", r)
	}
	if after, err := listing(srv(two)); err != nil || !maps.Equal(before, after) {
		t.Errorf("it was changed: %v, %v", after, err)
	}
}

func testRootsAway(t *testing.T, c *Cluster) {
	one, three := c.Masters[0], c.Masters[2]
	three.Kill(t)
	put(t, srv(one), map[string]string{"while away.sls": "1"})
	var r rootsReports
	Eventually(t, 20*time.Second, "it counts as away", func() error {
		if err := one.RunnerJSON(t, &r, "cluster.sync_roots"); err != nil {
			return err // a failure, until the master's silence is noticed
		}
		if p := r.File.Peers[three.ID]; p.Result != "away" {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	put(t, srv(one), map[string]string{"while away.sls": "2"})
	syncRoots(t, one)
	three.Run(t)
	Eventually(t, 60*time.Second, "it catches up by itself",
		func() error { return equalTrees(srv(one), srv(three)) })
	c.WaitReady(t, 60*time.Second, three)
	Eventually(t, 20*time.Second, "it counts as there", func() error {
		if err := one.RunnerJSON(t, &r, "cluster.sync_roots"); err != nil {
			return err
		}
		if p := r.File.Peers[three.ID]; p.Result != "ok" {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// fillTree makes n files with all kinds of names, and a sparse one.
func fillTree(t testing.TB, dir string, n int, sparse int64) {
	t.Helper()
	names := []string{"plain", "with space", "grün 日本", "new\nline", "not\xffutf8", "-dash",
		"'quote\""}
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("d%d", i%50), names[i%len(names)])
		if i < 350 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("%s %d", names[(i/7)%len(names)], i)),
			fmt.Appendf(nil, "file %d\n%s", i, strings.Repeat("x", i%3000)), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"link": "d1/plain", "d2/link": "../d1",
		"absolute": dir + "/d3", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "hollow"), 0o711),
		os.Chmod(filepath.Join(dir, "d4"), 0o750)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(sparse), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// memory is the proportional set size of a process in bytes.
func memory(m *Master) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", m.PID()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// watchMemory samples masters until stop is called. stop returns the peak of each.
func watchMemory(masters []*Master) (stop func() map[string]int64) {
	most := map[string]int64{}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, m := range masters {
				most[m.ID] = max(most[m.ID], memory(m))
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() map[string]int64 {
		close(done)
		<-ended
		return most
	}
}

// memoryLimit is what a sync may use in addition to the idle master.
const memoryLimit = 64 << 20

// bigSync syncs a large tree twice. It checks contents, memory, and that only differences travel.
func bigSync(t *testing.T, c *Cluster, files int, sparse int64) {
	one := c.Masters[0]
	fillTree(t, srv(one), files, sparse)
	idle := map[string]int64{}
	for _, m := range c.Masters {
		idle[m.ID] = memory(m)
	}
	stop := watchMemory(c.Masters)
	start := time.Now()
	r := syncRoots(t, one, "roots=file")
	took := time.Since(start)
	for id, n := range stop() {
		n -= idle[id]
		t.Logf("%s: %.1f MB above the %.1f MB of idling at most", id, float64(n)/1e6,
			float64(idle[id])/1e6)
		if n > memoryLimit {
			t.Errorf("%s used %d bytes more than idle, want at most %d", id, n, memoryLimit)
		}
	}
	for _, m := range c.Masters[1:] {
		p := r.File.Peers[m.ID]
		t.Logf("%s: +%d, %d bytes; all after %v", m.ID, p.Added, p.Bytes,
			took.Round(time.Millisecond))
		if p.Result != "ok" || p.Added < files || p.Bytes < sparse {
			t.Errorf("%s: %+v", m.ID, p)
		}
		if err := equalTrees(srv(one), srv(m)); err != nil {
			t.Error(err)
		}
	}
	put(t, srv(one), map[string]string{"one more": "x", "d1/plain/changed": "y"})
	start = time.Now()
	r = syncRoots(t, one, "roots=file")
	p := r.File.Peers[c.Masters[1].ID]
	t.Logf("again: +%d ~%d, %d bytes after %v", p.Added, p.Changed, p.Bytes,
		time.Since(start).Round(time.Millisecond))
	// the list of files, and two files
	if limit := int64(files)*150 + 10_000; p.Added != 2 || p.Bytes > limit {
		t.Errorf("second sync: %+v, want at most %d bytes", p, limit)
	}
}

func testManyFiles(t *testing.T, c *Cluster) { bigSync(t, c, 2000, 64<<20) }

// joiner makes a master that knows of the cluster only what it must.
func joiner(t *testing.T, c *Cluster, number int, extra string) *Master {
	t.Helper()
	m := c.newMaster(t, number)
	var lines []string
	for line := range strings.Lines(m.Config(t)) {
		if !strings.HasPrefix(line, "cluster_") {
			lines = append(lines, line)
		}
	}
	m.Configure(t, strings.Join(lines, "")+
		fmt.Sprintf("cluster_id: e2e\ncluster_secret: %s\ncluster_peers: [%s]\n", c.Secret,
			c.Masters[0].Addr)+extra)
	return m
}

func testRootsJoiner(t *testing.T, c *Cluster) {
	m := joiner(t, c, 4, "")
	put(t, srv(m), map[string]string{"here before": "x", "top.sls": "other"})
	m.Run(t)
	Eventually(t, 60*time.Second, "the joiner is ready", m.Ready)
	// Ready means that its roots have arrived.
	if err := os.Remove(filepath.Join(srv(m), "here before")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(equalTrees(srv(c.Masters[0]), srv(m)),
		equalTrees(pillarDir(c.Masters[0]), pillarDir(m))); err != nil {
		t.Error(err)
	}
	var v struct {
		Peers map[string]struct {
			State string         `json:"state"`
			Roots map[string]int `json:"roots_head"`
		} `json:"peers"`
	}
	Eventually(t, 30*time.Second, "every master sees its head", func() error {
		for _, asked := range append(slices.Clone(c.Masters), m) {
			if err := asked.RunnerJSON(t, &v, "cluster.members"); err != nil {
				return err
			}
			if p := v.Peers[m.ID]; p.Roots["file_roots"] < 5 ||
				p.Roots["file_roots"] != v.Peers["master1"].Roots["file_roots"] {
				return fmt.Errorf("on %s: %+v", asked.ID, v)
			}
		}
		return nil
	})
}

// noise fills a file with data that can't be compressed or guessed.
func noise(t testing.TB, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.CopyN(f, rand.Reader, size)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// fetching waits until a master has a part of what it fetches, but not all.
func fetching(t *testing.T, m *Master) {
	t.Helper()
	Eventually(t, 60*time.Second, m.ID+" fetches", func() error {
		parts, err := filepath.Glob(filepath.Join(m.Dir,
			"cache/clustermaster/statesync/blobs/parts/*"))
		if err != nil {
			return err
		}
		for _, p := range parts {
			if st, err := os.Stat(p); err == nil && st.Size() > 1<<20 {
				return nil
			}
		}
		return fmt.Errorf("parts: %v", parts)
	})
}

// TestRootsInterrupted: sources and joiners die in the middle of a copy, which runs slowly enough
// to hit that moment.
func TestRootsInterrupted(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Extra: isolated + "cluster_transfer_rate: 3000000\n"})
	c.StartMasters(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T, *Cluster)
	}{
		{"SourceKilled", testSourceKilled},
		{"ReceiverKilled", testReceiverKilled},
		{"JoinerShowsAndSurvives", testJoinerKilled},
		{"LeaderKilledWhileOneJoins", testLeaderKilledMidJoin},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, c) }) {
			break
		}
	}
}

func testSourceKilled(t *testing.T, c *Cluster) {
	one, two, three := c.Masters[0], c.Masters[1], c.Masters[2]
	put(t, srv(one), map[string]string{"old": "1"})
	syncRoots(t, one)
	noise(t, filepath.Join(srv(one), "big"), 24<<20)
	put(t, srv(one), map[string]string{"old": "2"})
	done := make(chan Result, 1)
	go func() {
		r, _ := run(one.test, one.programs.Run, "-c", one.ConfDir, "cluster.sync_roots")
		done <- r
	}()
	fetching(t, two)
	one.Kill(t)
	if r := <-done; r.Code == 0 {
		t.Errorf("the command knows nothing of it: %v", r)
	}
	// No head was published, and the old tree is whole.
	for _, m := range []*Master{two, three} {
		if b, err := os.ReadFile(filepath.Join(srv(m), "old")); err != nil || string(b) != "1" {
			t.Errorf("%s: %q, %v", m.ID, b, err)
		}
	}
	one.Run(t)
	c.WaitReady(t, 60*time.Second, c.Masters...)
	r := syncRoots(t, one)
	for _, m := range []*Master{two, three} {
		if err := equalTrees(srv(one), srv(m)); err != nil {
			t.Errorf("%v\n%+v", err, r)
		}
	}
	// All that was fetched for it, before and after the interruption: more than 1 MB had arrived.
	if p := r.File.Peers[two.ID]; p.Bytes >= 25<<20 {
		t.Errorf("what had arrived before was fetched again: %+v", p)
	}
}

func testReceiverKilled(t *testing.T, c *Cluster) {
	one, two, three := c.Masters[0], c.Masters[1], c.Masters[2]
	noise(t, filepath.Join(srv(one), "big"), 24<<20)
	done := make(chan Result, 1)
	go func() {
		r, _ := run(one.test, one.programs.Run, "-c", one.ConfDir, "cluster.sync_roots")
		done <- r
	}()
	fetching(t, three)
	three.Kill(t)
	if r := <-done; r.Code != 1 || !strings.Contains(r.Stdout, "failed") {
		t.Errorf("%v", r)
	}
	if err := equalTrees(srv(one), srv(two)); err != nil {
		t.Error(err)
	}
	three.Run(t)
	Eventually(t, 60*time.Second, "it goes on by itself",
		func() error { return equalTrees(srv(one), srv(three)) })
	c.WaitReady(t, 60*time.Second, c.Masters...)
}

func testJoinerKilled(t *testing.T, c *Cluster) {
	m := joiner(t, c, 4, "")
	m.Run(t)
	// Every peer shows its progress.
	type members struct {
		Learners []string `json:"learners"`
		Peers    map[string]struct {
			State string `json:"state"`
			Sync  struct {
				Percent float64 `json:"percent"`
				Bytes   int64   `json:"bytes"`
				Total   int64   `json:"bytes_total"`
				Rate    int64   `json:"rate"`
				ETA     int64   `json:"eta"`
			} `json:"sync"`
		} `json:"peers"`
	}
	shown := make([]bool, len(c.Masters))
	Eventually(t, 60*time.Second, "all show the joiner's progress", func() error {
		errs := make([]error, len(c.Masters))
		var all sync.WaitGroup
		for i, asked := range c.Masters {
			if shown[i] {
				continue
			}
			all.Go(func() {
				var v members
				if errs[i] = asked.RunnerJSON(t, &v, "cluster.members"); errs[i] != nil {
					return
				}
				p := v.Peers[m.ID]
				shown[i] = p.State == "syncing" && p.Sync.Bytes > 0 && p.Sync.Total >= 24<<20 &&
					p.Sync.Percent > 0 && p.Sync.Percent < 100 && p.Sync.Rate > 0 &&
					slices.Contains(v.Learners, m.ID)
				if !shown[i] {
					errs[i] = fmt.Errorf("%s: %+v", asked.ID, v)
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	})
	fetching(t, m)
	serves := dial(m.Addr, RequestPort) == nil || m.Probe("/readyz") == nil
	if serves && equalTrees(srv(c.Masters[0]), srv(m)) != nil {
		t.Error("it serves minions without its roots")
	}
	m.Kill(t)
	m.Run(t)
	Eventually(t, 90*time.Second, "the joiner is ready", m.Ready)
	if err := equalTrees(srv(c.Masters[0]), srv(m)); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(m.Log)
	if err != nil || !bytes.Contains(log, []byte("state-sync file_roots installed")) {
		t.Errorf("its log does not say so: %v", err)
	}
	var v Members
	Eventually(t, 30*time.Second, "it is a voter and no half member is left", func() error {
		if v, err = c.Masters[0].Members(t); err != nil {
			return err
		}
		if len(v.Voters) != 4 || len(v.Learners) != 0 {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	// The cluster ends with this step: the next one needs a quorum.
	if r := c.Masters[0].Runner(t, "cluster.remove", m.ID, "keep_secret=True"); r.Code != 0 {
		t.Errorf("%v", r)
	}
}

func testLeaderKilledMidJoin(t *testing.T, c *Cluster) {
	m := joiner(t, c, 5, "")
	dead := c.Leader(t, c.Masters[1])
	if dead == c.Masters[0] { // the joiner asks this one
		m.Configure(t, strings.Replace(m.Config(t), c.Masters[0].Addr+"]",
			c.Masters[1].Addr+"]", 1))
	}
	m.Run(t)
	fetching(t, m)
	dead.Kill(t)
	Eventually(t, 90*time.Second, "the joiner is ready", m.Ready)
	if err := equalTrees(srv(c.Others(dead)[0]), srv(m)); err != nil {
		t.Error(err)
	}
	dead.Run(t)
	c.WaitReady(t, 60*time.Second, c.Masters...)
}

// TestRootsOfManyGigabytes has the required sizes: 20,000 files, and one file of 2 GB.
func TestRootsOfManyGigabytes(t *testing.T) {
	long(t)
	c := NewCluster(t, ClusterOptions{Extra: isolated + "cluster_transfer_rate: 1000000000\n"})
	c.StartMasters(t)
	idle := memory(c.Masters[1])
	bigSync(t, c, 20_000, 2<<30)
	m := joiner(t, c, 4, "")
	start := time.Now()
	m.Run(t)
	fetching(t, m) // the start itself derives a key, which needs 64 MiB for a moment
	stop := watchMemory([]*Master{m})
	Eventually(t, 5*time.Minute, "the joiner is ready", m.Ready)
	peak := stop()[m.ID]
	t.Logf("a joiner was ready after %v, and used %.1f MB at most; a master that idles uses %.1f MB", time.Since(start).Round(time.Millisecond), float64(peak)/1e6, float64(idle)/1e6)
	if peak-idle > memoryLimit {
		t.Errorf("the joiner used %d bytes, an idle master %d", peak, idle)
	}
	if err := equalTrees(srv(c.Masters[0]), srv(m)); err != nil {
		t.Error(err)
	}
}
