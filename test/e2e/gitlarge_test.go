package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Bounds that TestGitOfManyFiles checks.
const (
	largeFolders, largeFiles, largeEnvs = 500, 100, 500 // files: in each folder

	mostBeyondFetch = 2 * time.Second // from a commit to all masters, besides the fetch itself
	leastOfRoots    = 0.9             // share of the file requests per second from file_roots
	leastOfSalt     = 20              // multiple of those of Salt's own master
	mostMemory      = 8e6             // bytes more for ten times the files: caches have fixed sizes
)

// largeRepo makes a repository of folders of files, and branches that differ in one file each.
func largeRepo(t *testing.T, dir string, folders, files, envs int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	Git(t, dir, "init", "-q", "-b", "master")
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(in)
	commit := func(branch, from string) {
		fmt.Fprintf(w, "commit refs/heads/%s\ncommitter a <a@example.org> 1700000000 +0000\n"+
			"data 6\ncommit\n%s", branch, from)
	}
	file := func(name, text string) {
		fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
	}
	commit("master", "")
	for d := 1; d <= folders; d++ {
		for f := 1; f <= files; f++ {
			file(fmt.Sprintf("d%d/f%d", d, f), largeText(d, f))
		}
	}
	for e := 1; e < envs; e++ {
		commit(fmt.Sprintf("e%d", e), "from refs/heads/master\n")
		file("env", fmt.Sprintf("of %d\n", e))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	Git(t, dir, "reset", "-q", "--hard")
}

// largeText is a file as in a state tree, different in each place.
func largeText(folder, file int) string {
	return fmt.Sprintf("service_%d_%d:\n  file.managed:\n", folder, file) +
		strings.Repeat("    - option: value\n", 12)
}

// perSecond asks a master for files with `clustermaster bench`, some seconds per kind of request.
// It returns the answered requests per second by name.
func perSecond(t *testing.T, c *Cluster, m *Master, file, env string,
	seconds int) map[string]float64 {
	t.Helper()
	figures := filepath.Join(c.Dir, "figures.json")
	r := Command(t, filepath.Join(filepath.Dir(Ours(t).Master), "clustermaster"), "bench",
		"--master", m.Addr, "--only", "file_hash,serve_file", "--file", file, "--saltenv", env,
		"--seconds", strconv.Itoa(seconds), "--warmup", "1", "--keys", filepath.Join(c.Dir, "keys"), "--json", figures)
	if r.Code != 0 {
		t.Fatal(r)
	}
	b, err := os.ReadFile(figures)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Columns []struct {
			Loads []struct {
				Request   string  `json:"request"`
				PerSecond float64 `json:"per_second"`
				Failed    uint64  `json:"failed"`
				Err       string  `json:"error"`
			} `json:"loads"`
		} `json:"columns"`
	}
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, column := range report.Columns {
		for _, l := range column.Loads {
			if l.Failed > 0 {
				t.Errorf("%s of %s: %d failed: %s", l.Request, env, l.Failed, l.Err)
			}
			out[l.Request] = l.PerSecond
		}
	}
	return out
}

// ownMemory is the memory that belongs to a process alone, in bytes.
func ownMemory(t *testing.T, m *Master) float64 {
	t.Helper()
	return float64(ProcNumber(t, m.PID(), "RssAnon")) * 1024
}

// allServe waits until all masters serve a commit for base, as one of them reports.
func allServe(t *testing.T, m *Master, masters int, commit string) {
	t.Helper()
	Eventually(t, 2*time.Minute, "all masters serve "+commit, func() error {
		var status map[string]struct {
			Holders      []string `json:"holders"`
			Environments map[string]struct {
				Commit string `json:"commit"`
			} `json:"environments"`
		}
		if err := m.RunnerJSON(t, &status, "cluster.git_status"); err != nil {
			return err
		}
		s := status["states"]
		if s.Environments["base"].Commit != commit || len(s.Holders) != masters {
			return fmt.Errorf("%s at %q, %d holders", m.ID, s.Environments["base"].Commit,
				len(s.Holders))
		}
		return nil
	})
}

// largeCluster has three masters serve a large repository from its first fetch on. It measures how
// long that, and an update of one file, takes beyond the time of git alone. The environment files
// is served from roots, a folder that is still empty.
func largeCluster(t *testing.T, folders int) (c *Cluster, repo, roots string) {
	t.Helper()
	dir := Folder(t)
	repo, roots = filepath.Join(dir, "states"), filepath.Join(dir, "files")
	if err := os.Mkdir(roots, 0o755); err != nil {
		t.Fatal(err)
	}
	largeRepo(t, repo+".new", folders, largeFiles, largeEnvs)
	extra := "auto_accept: True\nfileserver_backend: [roots, git]\nfile_roots: {files: [" + roots +
		"]}\ngitfs_remotes:\n  - file://" + repo +
		":\n    - name: states\n    - update_interval: 3600\n"
	c = NewCluster(t, ClusterOptions{Extra: extra})
	for _, m := range c.Masters { // only one file_roots
		m.Configure(t, strings.Replace(m.Config(t), "file_roots: {base", "#", 1))
	}
	c.StartMasters(t)
	if err := os.Rename(repo+".new", repo); err != nil {
		t.Fatal(err)
	}
	asked := c.Masters[0]
	update := func(what string, fetch func()) (beyond time.Duration) {
		t.Helper()
		began := time.Now()
		fetch()
		alone := time.Since(began)
		began = time.Now()
		if r := asked.Runner(t, "fileserver.update", "backend=git"); r.Code != 0 {
			t.Fatal(r)
		}
		allServe(t, asked, 3, Git(t, repo, "rev-parse", "HEAD"))
		took := time.Since(began)
		t.Logf("%d files, %d environments: %s on three masters after %v; git alone took %v",
			folders*largeFiles, largeEnvs, what, took.Round(time.Millisecond),
			alone.Round(time.Millisecond))
		return took - alone
	}
	mirror := filepath.Join(dir, "mirror")
	update("the first fetch", func() { Git(t, dir, "clone", "-q", "--mirror", "file://"+repo, mirror) })
	for i := range 3 {
		gitCommit(t, repo, map[string]string{"d1/f1": fmt.Sprint("changed ", i)})
		if beyond := update("one changed file",
			func() { Git(t, mirror, "fetch", "-q") }); beyond > mostBeyondFetch && RatesCount(t) {
			t.Errorf("an update took %v beyond the fetch, want at most %v", beyond, mostBeyondFetch)
		}
	}
	return c, repo, roots
}

// TestGitOfManyFiles measures a repository of 50,000 files and 500 environments: the time until
// three masters serve it, requests per second against file_roots and Salt's own master, and memory
// against a repository of a tenth of the files.
func TestGitOfManyFiles(t *testing.T) {
	long(t)
	Venvs(t)
	small, _, _ := largeCluster(t, largeFolders/10)
	perSecond(t, small, small.Masters[1], fmt.Sprintf("d{%d}/f{%d}", largeFolders/10, largeFiles),
		"base", 12)
	few := ownMemory(t, small.Masters[1])
	for _, m := range small.Masters {
		m.Stop(t, 20*time.Second)
	}

	c, repo, roots := largeCluster(t, largeFolders)
	m, files := c.Masters[1], fmt.Sprintf("d{%d}/f{%d}", largeFolders, largeFiles)
	git, ratios := map[string][]float64{}, map[string][]float64{}
	// First ask for all files, so that what is remembered of them is in memory.
	t.Logf("from git, at first: %v a second", perSecond(t, c, m, files, "base", 14))
	many := ownMemory(t, m)
	t.Logf("memory of a master: %.1f MB after requests for %d files, %.1f MB for a tenth: ratio %.2f",
		many/1e6, largeFolders*largeFiles, few/1e6, many/few)
	if many-few > mostMemory && MemoryCounts(t) {
		t.Errorf("memory grows by %.1f MB with the files, want at most %.1f", (many-few)/1e6,
			mostMemory/1e6)
	}
	if out, err := exec.Command("cp", "-r", repo+"/.", roots).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("from file_roots, at first: %v a second", perSecond(t, c, m, files, "files", 8))
	for range 5 {
		of, beside := perSecond(t, c, m, files, "base", 2), perSecond(t, c, m, files, "files", 2)
		for name, n := range of {
			git[name] = append(git[name], n)
			ratios[name] = append(ratios[name], n/beside[name])
			t.Logf("%s: %.0f a second from git, %.0f from file_roots: ratio %.2f", name, n, beside[name],
				n/beside[name])
		}
	}
	for name, list := range ratios {
		slices.Sort(list)
		t.Logf("%s: %.2f of file_roots in the median", name, list[len(list)/2])
		if list[len(list)/2] < leastOfRoots && RatesCount(t) {
			t.Errorf("%s: want at least %.2f of file_roots", name, leastOfRoots)
		}
	}
	for _, m := range c.Masters {
		m.Stop(t, 20*time.Second)
	}

	// Salt's own master, with the same repository.
	salts := NewCluster(t, ClusterOptions{Masters: 1, Plain: true,
		Programs: Theirs(t, "3008.3"),
		Extra: "auto_accept: True\nfileserver_backend: [git]\ngitfs_provider: gitpython\n" +
			"gitfs_remotes:\n  - file://" + repo + ":\n    - name: states\n"})
	began := time.Now()
	salts.Masters[0].Run(t)
	Eventually(t, 4*time.Minute, "Salt's master serves the repository", func() error {
		r := salts.Masters[0].Runner(t, "fileserver.envs", "backend=git", "--out=json")
		if n := strings.Count(r.Stdout, "\""); n < 2*largeEnvs {
			return fmt.Errorf("%d environments", n/2)
		}
		return nil
	})
	t.Logf("Salt's master has the environments after %v", time.Since(began).Round(time.Second))
	for name, n := range perSecond(t, salts, salts.Masters[0], files, "base", 5) {
		slices.Sort(git[name])
		ratio := git[name][len(git[name])/2] / n
		t.Logf("%s: %.0f a second from git, Salt's master %.0f: ratio %.1f", name,
			git[name][len(git[name])/2], n,
			ratio)
		if ratio < leastOfSalt && RatesCount(t) {
			t.Errorf("%s: %.1f times Salt's, want at least %d", name, ratio, leastOfSalt)
		}
	}
}
