package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// daemon are the shell commands that start and stop a master in the background.
func daemonCommands(m *Master, p Programs) (start, stop string) {
	return fmt.Sprintf("%s -c %s -d >/dev/null 2>&1", p.Master, m.ConfDir),
		fmt.Sprintf("kill $(cat %s)", filepath.Join(m.Dir, "master.pid"))
}

// endDaemon ends the master of the pidfile.
func (m *Master) endDaemon(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.Dir, "master.pid"))
	if err != nil {
		return
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		for range 100 {
			if syscall.Kill(pid, 0) != nil {
				return
			}
			<-time.After(100 * time.Millisecond)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// pinger pings a minion again and again, a second after each answer, by the command of the master
// that runs.
type pinger struct {
	mu           sync.Mutex // guards what follows
	good, missed int
	last         time.Time // of the last answer
	gap          time.Duration
	end          chan struct{}
	ended        chan struct{}
}

func startPinger(t *testing.T, m *Master, id string, ours, theirs Programs) *pinger {
	p := &pinger{end: make(chan struct{}), ended: make(chan struct{}), last: time.Now()}
	go func() {
		defer close(p.ended)
		for {
			prog := theirs
			if _, err := os.Stat(filepath.Join(m.Dir, "run", "clustermaster.sock")); err == nil {
				prog = ours
			}
			r, err := run("", prog.Salt, "-c", m.ConfDir, "--out=json", "--static", "-t", "5", id,
				"test.ping")
			p.mu.Lock()
			if err == nil && slices.Contains(answered(r), id) {
				p.good++
				p.gap, p.last = max(p.gap, time.Since(p.last)), time.Now()
			} else {
				p.missed++
			}
			p.mu.Unlock()
			select {
			case <-p.end:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	t.Cleanup(p.stop)
	return p
}

func (p *pinger) stop() {
	select {
	case <-p.end:
	default:
		close(p.end)
	}
	<-p.ended
}

// answer waits until a ping that begins from now on is answered, and tells what was since the last
// call.
func (p *pinger) answer(t *testing.T, after string) {
	t.Helper()
	p.mu.Lock()
	before := p.good
	p.mu.Unlock()
	Eventually(t, 90*time.Second, "the minion answers "+after, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.good < before+2 { // the first may have begun earlier
			return errors.New("not yet")
		}
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%s: %d pings answered, %d missed, longest time without an answer %v", after, p.good,
		p.missed, p.gap.Round(100*time.Millisecond))
	p.good, p.missed, p.gap = 0, 0, 0
}

// TestMigration takes a real Salt master with a real minion to this master and back, under pings.
// The minion keeps its key and is not restarted.
func TestMigration(t *testing.T) {
	t.Parallel()
	long(t)
	for _, release := range Releases {
		t.Run(release, func(t *testing.T) { migrate(t, release) })
	}
}

// TestMigrationSteps applies and rolls back without a Salt: a folder of keys as Salt leaves it, and
// this master in Salt's place.
func TestMigrationSteps(t *testing.T) {
	t.Parallel()
	ours := Ours(t)
	c := NewCluster(t, ClusterOptions{Masters: 1, Plain: true, Programs: ours})
	m := c.Masters[0]
	pki := filepath.Join(m.Dir, "pki")
	for _, name := range []string{"master", "minions/web1", "minions_pre/web2"} {
		if r := m.Key(t, "--gen-keys", filepath.Base(name), "--gen-keys-dir", m.Dir); r.Code != 0 {
			t.Fatal(r)
		}
		if err := os.MkdirAll(filepath.Join(pki, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		from, to := filepath.Join(m.Dir, filepath.Base(name)), filepath.Join(pki, name)
		if name == "master" {
			if err := os.Rename(from+".pem", to+".pem"); err != nil {
				t.Fatal(err)
			}
			to += ".pub"
		}
		if err := os.Rename(from+".pub", to); err != nil {
			t.Fatal(err)
		}
	}
	start, stop := daemonCommands(m, ours)
	t.Cleanup(func() { m.endDaemon(t) })
	tool := func(args ...string) Result {
		return Command(t, filepath.Join(filepath.Dir(ours.Master), "clustermaster"),
			append([]string{"migrate", "-c", m.ConfDir}, args...)...)
	}
	if r := tool("plan"); r.Code == 1 ||
		!strings.Contains(r.Stdout, "Keys: 1 accepted, 1 pending") {
		t.Errorf("plan: %v", r)
	}
	if r := tool("apply", "--stop", "true", "--start", "echo no such package; exit 1", "--undo",
		start); r.Code != 1 || !strings.Contains(r.Stderr, "Salt's master was put back") {
		t.Fatalf("apply that fails: %v", r)
	}
	m.endDaemon(t)
	// Salt's master would leave neither
	for _, left := range []string{filepath.Join(m.Dir, "cache", "clustermaster"),
		filepath.Join(pki, ".clustermaster_export")} {
		if err := os.RemoveAll(left); err != nil {
			t.Fatal(err)
		}
	}
	if r := tool("apply", "--stop", "true", "--start", start, "--undo", "true"); r.Code != 0 ||
		!strings.Contains(r.Stdout, "compared 2 keys") {
		t.Fatalf("apply: %v", r)
	}
	if r := m.Key(t, "-y", "-a", "web2"); r.Code != 0 {
		t.Fatal(r)
	}
	if r := tool("rollback", "--stop", stop, "--start", start); r.Code != 0 {
		t.Fatalf("rollback: %v", r)
	}
	for path, there := range map[string]bool{
		filepath.Join(pki, "minions", "web2"):                      true,
		filepath.Join(pki, "minions_pre", "web2"):                  false,
		filepath.Join(m.ConfDir, "master.d", "clustermaster.conf"): false,
	} {
		if _, err := os.Stat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	if r := tool("plan"); r.Code != 1 ||
		!strings.Contains(r.Stdout, "data of this master are there already") {
		t.Errorf("plan where this master has data: %v", r)
	}
}

func migrate(t *testing.T, release string) {
	ours, theirs := Ours(t), Theirs(t, release)
	c := NewCluster(t, ClusterOptions{Masters: 1, Plain: true, Programs: theirs,
		Extra: "auto_accept: True\nworker_threads: 3\n"})
	m := c.Masters[0]
	tool := func(args ...string) Result {
		return Command(t, filepath.Join(filepath.Dir(ours.Master), "clustermaster"),
			append([]string{"migrate", "-c", m.ConfDir, "--salt-master", theirs.Master},
				args...)...)
	}
	if r := tool("plan"); r.Code != 1 ||
		!strings.Contains(r.Stdout, "is this the box of the Salt master?") {
		t.Errorf("plan without a key: %v", r)
	}
	startTheirs, stop := daemonCommands(m, theirs)
	startOurs, _ := daemonCommands(m, ours)
	t.Cleanup(func() { m.endDaemon(t) })
	if r := Command(t, "/bin/sh", "-c", startTheirs); r.Code != 0 {
		t.Fatal(r)
	}
	minion := NewMinion(t, c.Dir, MinionOptions{ID: "kept", Release: release, Master: m.Addr})
	minion.Run(t)
	pings := startPinger(t, m, minion.ID, ours, theirs)
	pings.answer(t, "before")
	pid := minion.PID()
	var ran struct{ JID string }
	r := Command(t, theirs.Salt, "-c", m.ConfDir, "--out=json", "--show-jid", minion.ID,
		"test.echo", "from before")
	if _, after, ok := strings.Cut(r.Stdout, "jid: "); ok {
		ran.JID, _, _ = strings.Cut(after, "\n")
	}
	if ran.JID == "" {
		t.Fatal(r)
	}

	r = tool("plan", "--json")
	var p struct {
		Release  string `json:"salt_release"`
		Keys     map[string]int
		Blockers []string
	}
	if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil || r.Code == 1 ||
		p.Keys["minions"] != 1 || !strings.Contains(p.Release, release) || len(p.Blockers) > 0 {
		t.Fatalf("plan: %v\n%v", err, r)
	}
	// A master that can't start puts Salt's back, with nothing changed.
	r = tool("apply", "--stop", stop, "--start", "echo there is no such package; exit 1", "--undo",
		startTheirs)
	if r.Code != 1 || !strings.Contains(r.Stderr,
		"there is no such package; Salt's master was put back") {
		t.Fatalf("apply that fails: %v", r)
	}
	if _, err := os.Stat(filepath.Join(m.ConfDir, "master.d", "clustermaster.conf")); err == nil {
		t.Error("an apply that failed left its options")
	}
	pings.answer(t, "apply that failed")

	if r = tool("apply", "--stop", stop, "--start", startOurs, "--undo", startTheirs); r.Code != 0 {
		t.Fatalf("apply: %v", r)
	}
	t.Log(r.Stdout)
	pings.answer(t, "apply")
	m.Use(ours)
	if r := m.Runner(t, "jobs.lookup_jid", ran.JID); !strings.Contains(r.Stdout, "from before") {
		t.Errorf("a job of before: %v", r)
	}
	if r := m.Salt(t, "-G", "e2e:"+release, "test.ping"); !strings.Contains(r.Stdout, minion.ID) {
		t.Errorf("grains of before: %v", r)
	}
	if r := tool("apply", "--stop", stop, "--start", startOurs); r.Code != 1 ||
		!strings.Contains(r.Stderr, "it is applied already") {
		t.Errorf("a second apply: %v", r)
	}
	fresh := NewMinion(t, c.Dir, MinionOptions{ID: "fresh", Release: release, Master: m.Addr})
	fresh.Run(t)
	Eventually(t, 60*time.Second, "a new minion is accepted", func() error {
		if keys, err := m.Keys(t); err != nil || len(keys["minions"]) != 2 {
			return fmt.Errorf("%v %w", keys, err)
		}
		return nil
	})

	if r = tool("rollback", "--stop", stop, "--start", startTheirs); r.Code != 0 {
		t.Fatalf("rollback: %v", r)
	}
	t.Log(r.Stdout)
	pings.answer(t, "rollback")
	m.Use(theirs)
	if r := m.Key(t, "-l", "acc"); !strings.Contains(r.Stdout, "kept") ||
		!strings.Contains(r.Stdout, "fresh") {
		t.Errorf("keys after the return: %v", r)
	}
	Eventually(t, 60*time.Second, "the minion that was accepted meanwhile answers Salt's master",
		func() error {
			if ids := answered(m.Salt(t, "--out=json", "--static", "fresh",
				"test.ping")); len(ids) != 1 {
				return errors.New("not yet")
			}
			return nil
		})
	if !minion.Running() || minion.PID() != pid {
		t.Error("the minion was restarted")
	}
	if r := tool("rollback", "--stop", stop, "--start", startTheirs); r.Code != 1 ||
		!strings.Contains(r.Stderr, "no migration is recorded") {
		t.Errorf("a second rollback: %v", r)
	}
}
