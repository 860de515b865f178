package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// gitRepo makes a repository with one commit.
func gitRepo(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "states")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	Git(t, dir, "init", "-q", "-b", "master")
	gitCommit(t, dir, map[string]string{"top.sls": "base: {}", "n": "0"})
	return dir
}

func gitCommit(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	put(t, dir, files)
	Git(t, dir, "add", "-A")
	Git(t, dir, "commit", "-q", "-m", "commit")
	return Git(t, dir, "rev-parse", "HEAD")
}

// servesGit returns nil if a master serves a commit for base and lists a file.
func servesGit(t *testing.T, m *Master, commit, file string) error {
	t.Helper()
	var status map[string]struct {
		Environments map[string]struct {
			Commit string `json:"commit"`
		} `json:"environments"`
	}
	if err := m.RunnerJSON(t, &status, "cluster.git_status"); err != nil {
		return err
	}
	if got := status["states"].Environments["base"].Commit; got != commit {
		return fmt.Errorf("%s serves %q, not %s", m.ID, got, commit)
	}
	var files []string
	if err := m.RunnerJSON(t, &files, "fileserver.file_list", "backend=git"); err != nil {
		return err
	}
	if !slices.Contains(files, file) {
		return fmt.Errorf("%s lists %q, without %s", m.ID, files, file)
	}
	return nil
}

// TestGit has three masters serve from a repository while leaders die and the repository is away.
func TestGit(t *testing.T) {
	t.Parallel()
	repo := gitRepo(t)
	extra := "fileserver_backend: [git, roots]\nfileserver_events: True\ngitfs_remotes:\n  - file://" +
		repo + ":\n    - name: states\n    - update_interval: 1\n"
	c := NewCluster(t, ClusterOptions{Extra: extra})
	c.StartMasters(t)
	all := func(what string, masters []*Master, commit, file string) {
		t.Helper()
		took := Eventually(t, time.Minute, what, func() error {
			for _, m := range masters {
				if err := servesGit(t, m, commit, file); err != nil {
					return err
				}
			}
			return nil
		})
		t.Logf("%s: %v", what, took.Round(time.Millisecond))
	}
	first := Git(t, repo, "rev-parse", "HEAD")
	all("three masters serve the first commit", c.Masters, first, "n")

	// Each change is one event in the cluster, whichever master fetches.
	leader := c.Leader(t, c.Masters[0])
	others := c.Others(leader)
	updates := regexp.MustCompile(`^salt/fileserver/gitfs/update$`)
	w := watch(t, others[1])
	told := func(what string, want int) {
		t.Helper()
		Eventually(t, 30*time.Second, what, func() error {
			if got := w.events(t, updates); len(got) != want || !strings.Contains(got[want-1],
				`"changed": true`) {
				return fmt.Errorf("events %q, want %d", got, want)
			}
			return nil
		})
	}
	more := gitCommit(t, repo, map[string]string{"more": "1"})
	all("three masters serve one more commit", c.Masters, more, "more")
	told("an event tells of it", 1)

	// The leader dies when the first other master serves the next commit.
	second := gitCommit(t, repo, map[string]string{"second": "2"})
	Eventually(t, time.Minute, "one master serves the second commit",
		func() error { return servesGit(t, others[0], second, "second") })
	leader.Kill(t)
	all("two masters serve the second commit", others, second, "second")
	third := gitCommit(t, repo, map[string]string{"third": "3"})
	all("the next leader fetches", others, third, "third")
	c.Leader(t, others[0]).Runner(t, "event.send", "third/told") // after its own event
	Eventually(t, 30*time.Second, "the leader's events are here", func() error {
		if len(w.events(t, regexp.MustCompile(`^third/told$`))) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	events := len(w.events(t, updates))
	if events < 2 || events > 3 { // the leader may have died before it told of the second commit
		t.Errorf("%d events of three commits", events)
	}

	// Another master removes the lock of one master, which counts until then.
	for _, step := range []struct {
		m    *Master
		args []string
		says string
	}{
		{others[0], []string{"fileserver.lock", "backend=git"}, "Set update lock for gitfs " +
			"remote 'file://" + repo + "'"},
		{others[1], []string{"cache.clear_git_lock", "git_pillar"}, "No locks were removed"},
		{others[1], []string{"cache.clear_git_lock", "gitfs", "type=checkout"}, "No locks were removed"},
		{others[1], []string{"cache.clear_git_lock", "gitfs"}, "Removed update lock for gitfs " +
			"remote 'file://" + repo + "'"},
		{others[0], []string{"cache.clear_git_lock", "gitfs"}, "No locks were removed"},
	} {
		if r := step.m.Runner(t, step.args...); r.Code != 0 || !strings.Contains(r.Stdout, step.says) {
			t.Errorf("%s: %v, want %q", strings.Join(step.args, " "), r, step.says)
		}
	}

	// The leader that died comes back, and another master joins, while the repository is away. They
	// get the commits from the other masters.
	if err := os.Rename(repo, repo+".away"); err != nil {
		t.Fatal(err)
	}
	leader.Run(t)
	all("the returned master has caught up", c.Masters, third, "third")
	m := joiner(t, c, 4, "")
	m.Run(t)
	all("a fourth master has joined", []*Master{m}, third, "third")
	wiped := others[0] // not the one with the watcher
	if c.Leader(t, m) == wiped {
		wiped = leader
	}
	wiped.Kill(t)
	wiped.Wipe(t)
	wiped.Run(t)
	all("a wiped master has all again", []*Master{wiped}, third, "third")

	// An environment is rolled back (with a look at it first), and released.
	from := c.Masters[1]
	var change struct {
		To      string   `json:"to"`
		Changed bool     `json:"changed"`
		Files   []string `json:"files"`
	}
	if err := from.RunnerJSON(t, &change, "cluster.git_rollback", "states", "base",
		"test=True"); err != nil {
		t.Fatal(err)
	}
	if change.To != second || change.Changed || !slices.Equal(change.Files, []string{"D third"}) {
		t.Errorf("dry run: %+v", change)
	}
	all("nothing is rolled back", c.Masters, third, "third")
	told("no event since the third commit", events)
	if err := from.RunnerJSON(t, &change, "cluster.git_rollback", "states", "base"); err != nil {
		t.Fatal(err)
	}
	all("all are rolled back", append(slices.Clip(c.Masters), m), second, "second")
	told("an event tells of the rollback", events+1)
	if r := c.Masters[2].Runner(t, "cluster.git_unpin", "states", "base"); r.Code != 0 {
		t.Error(r)
	}
	all("all follow the branch again", append(slices.Clip(c.Masters), m), third, "third")
	told("an event tells of the end of the rollback", events+2)
}

// deploySLS takes a file, waits for permission to go on, and takes another file.
const deploySLS = `{% set dir = salt['config.get']('root_dir') %}
{{ dir }}/one:
  file.managed:
    - source: salt://one
held:
  cmd.run:
    - name: touch {{ dir }}/held; while [ ! -e {{ dir }}/go ]; do sleep 0.1; done
{{ dir }}/two:
  file.managed:
    - source: salt://two
`

// TestGitJobs has minions run jobs while the repository changes and the leader dies. If the option
// names the job's function, all files of the job come from the commit with which it began.
func TestGitJobs(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	Venvs(t)
	repo := gitRepo(t)
	version := func(n string) string {
		return gitCommit(t, repo, map[string]string{"deploy.sls": deploySLS, "one": n, "two": n})
	}
	extra := "auto_accept: True\nfileserver_backend: [git]\ngit_job_functions: [state.apply]\n" +
		"gitfs_remotes:\n  - file://" + repo + ":\n    - name: states\n    - update_interval: 1\n"
	c := NewCluster(t, ClusterOptions{Extra: extra})
	first := version("1")
	c.Start(t)
	c.AddMinions(t, "git", "recon_default: 1000\nrecon_max: 2000\n", Releases...)
	served := func(commit string) {
		t.Helper()
		Eventually(t, time.Minute, "all masters serve "+commit, func() error {
			for _, m := range c.Running() {
				if err := servesGit(t, m, commit, "two"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	served(first)
	from := c.Others(c.Leader(t, c.Masters[0]))[0]
	Eventually(t, 90*time.Second, "all minions answer", func() error {
		if got, r := from.Ping(t); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v\n%v", got, r)
		}
		return nil
	})
	each := func(do func(m *Minion) error) error {
		for _, m := range c.Minions {
			if err := do(m); err != nil {
				return fmt.Errorf("%s: %w", m.ID, err)
			}
		}
		return nil
	}
	// run orders a job, changes the repository while the job is held in the middle, and lets it go
	// on.
	run := func(what, function, change, one, two string, meanwhile func()) {
		t.Helper()
		if err := each(func(m *Minion) error {
			for _, name := range []string{"held", "go", "one", "two"} {
				_ = os.Remove(filepath.Join(m.Dir, name))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		job(t, from, "*", function, "deploy")
		exists := func(name string) func(*Minion) error {
			return func(m *Minion) error { _, err := os.Stat(filepath.Join(m.Dir, name)); return err }
		}
		Eventually(t, 90*time.Second, what+" is held", func() error { return each(exists("held")) })
		served(version(change))
		meanwhile()
		if err := each(func(m *Minion) error {
			return os.WriteFile(filepath.Join(m.Dir, "go"), nil, 0o644)
		}); err != nil {
			t.Fatal(err)
		}
		Eventually(t, 90*time.Second, what+" ends", func() error { return each(exists("two")) })
		Eventually(t, 30*time.Second, what+" took its files", func() error {
			return each(func(m *Minion) error {
				for name, want := range map[string]string{"one": one, "two": two} {
					got, err := os.ReadFile(filepath.Join(m.Dir, name))
					if err != nil || string(got) != want {
						return fmt.Errorf("%s is %q, want %q; %v", name, got, want, err)
					}
				}
				return nil
			})
		})
		Eventually(t, 60*time.Second, "no job runs", func() error {
			r := from.Salt(t, "*", "saltutil.is_running", "state.*", "--out=json", "--static")
			if n := strings.Count(r.Stdout, "[]"); n != len(c.Minions) {
				return fmt.Errorf("%d minions run no state\n%v", n, r)
			}
			return nil
		})
	}
	run("a job whose function is not named", "state.sls", "2", "1", "2", func() {})
	run("a job while the leader dies", "state.apply", "3", "2", "2",
		func() { c.Leader(t, from).Kill(t) })
	run("the next job", "state.apply", "4", "3", "3", func() {})
}

// gate stands between masters and a git server. While it is shut, it accepts connections and sends
// nothing on them.
type gate struct {
	addr, server string

	mu   sync.Mutex // guards all below
	shut bool
	held []net.Conn
}

func newGate(t *testing.T, server string) *gate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: ln.Addr().String(), server: server}
	t.Cleanup(func() { ln.Close(); g.open() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go g.pass(c)
		}
	}()
	return g
}

func (g *gate) pass(c net.Conn) {
	g.mu.Lock()
	if g.shut {
		g.held = append(g.held, c)
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	defer c.Close()
	s, err := net.Dial("tcp", g.server)
	if err != nil {
		return
	}
	defer s.Close()
	go func() { _, _ = io.Copy(s, c) }()
	_, _ = io.Copy(c, s)
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
	for _, c := range g.held {
		c.Close()
	}
	g.held = nil
}

// holds returns nil when at least that many connections wait.
func (g *gate) holds(least int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.held) < least {
		return fmt.Errorf("%d connections wait, not %d", len(g.held), least)
	}
	return nil
}

// TestGitServerHangs kills the leader while the git server has accepted its connection and sends
// nothing. The next leader meets the same, gives up in time, and continues when the server does.
func TestGitServerHangs(t *testing.T) {
	t.Parallel()
	repo := gitRepo(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	daemon := exec.Command(filepath.Join(Git(t, repo, "--exec-path"), "git-daemon"),
		"--listen=127.0.0.1", "--port="+port, "--export-all", "--base-path="+filepath.Dir(repo),
		"--reuseaddr")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill(); _ = daemon.Wait() })
	g := newGate(t, "127.0.0.1:"+port)
	c := NewCluster(t, ClusterOptions{Extra: "fileserver_backend: [git]\ngit_fetch_timeout: 3\n" +
		"gitfs_remotes:\n  - git://" + g.addr + "/states/.git:\n    - name: states\n" +
		"    - update_interval: 1\n"})
	c.StartMasters(t)
	serve := func(commit string, masters ...*Master) {
		t.Helper()
		Eventually(t, time.Minute, "masters serve "+commit, func() error {
			for _, m := range masters {
				if err := servesGit(t, m, commit, "n"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	first := Git(t, repo, "rev-parse", "HEAD")
	serve(first, c.Masters...)
	leader := c.Leader(t, c.Masters[0])
	others := c.Others(leader)
	g.close()
	second := gitCommit(t, repo, map[string]string{"second": "2"})
	Eventually(t, 30*time.Second, "the leader's fetch hangs", func() error { return g.holds(1) })
	leader.Kill(t)
	g.open()
	g.close() // connections that wait from now on are the next leader's
	Eventually(t, 30*time.Second, "the next leader tells that its fetch hangs", func() error {
		var status map[string]struct {
			Error string `json:"error"`
		}
		if err := others[0].RunnerJSON(t, &status, "cluster.git_status"); err != nil {
			return err
		}
		if e := status["states"].Error; !strings.Contains(e, "was stopped") {
			return fmt.Errorf("its last error is %q", e)
		}
		return g.holds(2)
	})
	serve(first, others...)
	g.open()
	serve(second, others...)
	leader.Run(t)
	serve(second, c.Masters...)
}

// TestGitPillarOfNewBranch asks each of three masters for a pillar from a branch made a moment ago,
// long before the leader is to fetch again.
func TestGitPillarOfNewBranch(t *testing.T) {
	t.Parallel()
	repo := gitRepo(t)
	c := NewCluster(t, ClusterOptions{Extra: "git_pillar_update_interval: 3600\next_pillar: [{git: ['__env__ file://" +
		repo + "']}]\n"})
	c.StartMasters(t)
	for _, m := range c.Masters {
		Git(t, repo, "checkout", "-q", "-b", m.ID)
		gitCommit(t, repo, map[string]string{"top.sls": m.ID + ": {'*': [is]}", "is.sls": "is: " + m.ID})
		var pillar map[string]any
		if err := m.RunnerJSON(t, &pillar, "pillar.show_pillar", "minion=any", "pillarenv="+m.ID); err != nil {
			t.Fatal(err)
		}
		if pillar["is"] != m.ID {
			t.Errorf("%s: %v", m.ID, pillar)
		}
	}
}

// TestGitDamagedMirror damages the mirrors of all masters, and takes the remote away. A minion's
// state then fails and changes nothing: the file of the same name in file_roots does not take the
// place of git's. Once the remote is back, the masters fetch everything anew by themselves: the
// leader from there, the others from it. One that is damaged alone does not need the remote.
func TestGitDamagedMirror(t *testing.T) {
	t.Parallel()
	repo := gitRepo(t)
	const sls = "{{ salt['config.get']('root_dir') }}/a:\n  file.managed:\n    - source: salt://d/a\n"
	commit := gitCommit(t, repo, map[string]string{"a.sls": sls, "d/a": "of git"})
	c := NewCluster(t, ClusterOptions{Extra: "auto_accept: True\n" +
		"fileserver_backend: [git, roots]\ngitfs_remotes:\n  - file://" + repo +
		":\n    - name: states\n"})
	c.StartMasters(t)
	master := c.Masters[0]
	put(t, filepath.Join(master.Dir, "srv"), map[string]string{"d/a": "of file_roots"})
	served := func() error { return servesGit(t, master, commit, "d/a") }
	Eventually(t, time.Minute, "the master serves the commit", served)
	minion := NewMinion(t, c.Dir, MinionOptions{ID: "git", Release: Releases[len(Releases)-1],
		Master: master.Addr, Extra: "recon_default: 1000\nrecon_max: 2000\n"})
	minion.Run(t)
	answers := func() error { return pings(t, master, minion.ID) }
	apply := func(ok bool) {
		t.Helper()
		Eventually(t, 90*time.Second, "the minion answers", answers)
		r := master.Salt(t, minion.ID, "state.apply", "a")
		got, err := os.ReadFile(filepath.Join(minion.Dir, "a"))
		if err != nil || string(got) != "of git" || (r.Code == 0) != ok {
			t.Fatalf("the minion has %q, %v\n%v", got, err, r)
		}
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	apply(true)
	if code, _ := master.Stop(t, 20*time.Second); code != 0 {
		t.Fatalf("it ended with %d", code)
	}
	for _, m := range c.Masters {
		spoilMirror(t, m)
	}
	move(repo, repo+".away")
	master.Run(t)
	apply(false)
	if err := logged(master.Log, " is damaged: "); err != nil {
		t.Error(err)
	}
	Eventually(t, time.Minute, "an attempt fails", func() error {
		return logged(master.Log, "the damaged git mirror can't be fetched anew")
	})
	move(repo+".away", repo)
	Eventually(t, 2*time.Minute, "the master has all anew", served)
	apply(true)
	move(repo, repo+".away")
	if code, _ := master.Stop(t, 20*time.Second); code != 0 {
		t.Fatalf("it ended with %d", code)
	}
	spoilMirror(t, master)
	master.Run(t)
	Eventually(t, time.Minute, "the master has all anew from the others", served)
	log, err := os.ReadFile(master.Log)
	if n := strings.Count(string(log), "the git mirror is whole again"); n != 2 || err != nil {
		t.Errorf("the mirror was replaced %d times, want 2, %v", n, err)
	}
}

// spoilMirror alters bytes of all objects in the mirror of a master.
func spoilMirror(t *testing.T, m *Master) {
	t.Helper()
	objects := filepath.Join(m.Dir, "cache", "clustermaster", "git", "mirrors", "*", "objects")
	found, err := filepath.Glob(filepath.Join(objects, "??", "*"))
	packs, err2 := filepath.Glob(filepath.Join(objects, "pack", "*.pack"))
	if found = append(found, packs...); err != nil || err2 != nil || len(found) == 0 {
		t.Fatal(found, err, err2)
	}
	for _, file := range found {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := 12; i < len(b); i += 7 {
			b[i] ^= 1
		}
		if err := errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
