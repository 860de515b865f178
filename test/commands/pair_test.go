package commands

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
)

// side is one of the two masters with its minions and its commands.
type side struct {
	*e2e.Master
	kind    string // "salt" or "clustermaster"
	program e2e.Programs
	cmd     command
	minions map[string]*e2e.Minion
	notes   notes
}

// options are those of both masters. A minion may be slow on a busy machine; lines that wait for a
// silent one set -t or timeout=.
const options = `timeout: 15
gather_job_timeout: 3
keep_jobs_seconds: 86400
nodegroups:
  both: 'L@web-a,web-b'
  one: web-a
`

// salts are options of Salt's master alone, so that it starts sooner.
const salts = "worker_threads: 3\nkeysize: 2048\nenable_fqdns_grains: False\n"

// newSide makes the folders and configuration of a single master.
func newSide(t testing.TB, kind string, cmd command, p e2e.Programs) *side {
	t.Helper()
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true, Programs: p})
	s := &side{Master: c.Masters[0], kind: kind, program: p, cmd: cmd,
		minions: map[string]*e2e.Minion{}}
	s.recent()
	writeRoots(t, s.Dir)
	writeRuns(t, s.Dir)
	writeUsers(t, s.Dir)
	text := regexp.MustCompile(`(?m)^(file|pillar)_roots:.*\n`).ReplaceAllString(s.Config(t), "") +
		strings.ReplaceAll(rootOptions, "DIR", s.Dir) + options + accessOptions +
		strings.ReplaceAll(externalOptions, "DIR", s.Dir)
	if kind == "salt" {
		text += salts
	}
	s.Configure(t, text)
	s.configureDown(t)
	for _, id := range []string{"web-a", "web-b"} {
		s.minions[id] = e2e.NewMinion(t, c.Dir,
			e2e.MinionOptions{ID: id, Release: reference, Master: s.Addr, Extra: minionOptions})
	}
	return s
}

// configureDown writes the configuration of a master that never runs, DIR/down.
func (s *side) configureDown(t testing.TB) {
	t.Helper()
	dir := filepath.Join(s.Dir, "down")
	text := fmt.Sprintf("root_dir: %[1]s\nsock_dir: %[1]s/run\nlog_file: %[1]s/log\nlog_level: error\n", dir)
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "run"), 0o755),
		os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

const minionOptions = `random_reauth_delay: 1
recon_default: 200
recon_max: 500
grains_cache: False
`

// call runs a command of this side against its master, with its texts filled in. Its home is the
// side's, so that no token of whoever runs the tests counts.
func (s *side) call(t testing.TB, name string, c call) result {
	t.Helper()
	c = s.filled(c)
	c.env = append([]string{"HOME=" + filepath.Join(s.Dir, "home")}, c.env...)
	c.args = append([]string{"-c", s.ConfDir}, c.args...)
	return s.cmd.run(t, name, c)
}

// must runs a command that has to end with exit code 0.
func (s *side) must(t testing.TB, name string, args ...string) result {
	t.Helper()
	r := s.call(t, name, call{args: args})
	if r.code != 0 {
		t.Fatalf("%s: %s %q\n%v", s.kind, name, args, r)
	}
	return r
}

// pair is the two sides, running. If Salt's answers are kept, its side is nil.
type pair struct {
	theirs, ours *side
	answers      *answers.Answers[said] // of the scene being played
}

func (p *pair) sides() []*side {
	if p.theirs == nil {
		return []*side{p.ours}
	}
	return []*side{p.theirs, p.ours}
}

// both does the same on the existing sides, at the same time. f reports failures with t.Error,
// never t.Fatal.
func (p *pair) both(f func(s *side)) {
	var wg sync.WaitGroup
	for _, s := range p.sides() {
		wg.Go(func() { f(s) })
	}
	wg.Wait()
}

// startPair starts the masters and their minions, accepts the keys and waits until all answer.
func startPair(t *testing.T) *pair { return startPairWith(t, func(*side) {}) }

// startPairWith is startPair for sides that prepare prepares.
func startPairWith(t *testing.T, prepare func(s *side)) *pair {
	t.Helper()
	own := e2e.Ours(t)
	p := &pair{ours: newSide(t, "clustermaster", programs{filepath.Dir(own.Salt)}, own)}
	if live() {
		p.theirs = newSide(t, "salt", startLibrary(t, reference), e2e.Theirs(t, reference))
	}
	for _, s := range p.sides() {
		prepare(s)
		s.Run(t)
		for _, m := range s.minions {
			m.Run(t)
		}
	}
	for _, s := range p.sides() {
		e2e.Eventually(t, 90*time.Second, "keys at "+s.kind, func() error {
			if err := s.Ready(); err != nil {
				return err
			}
			r := s.call(t, "salt-key", call{args: []string{"-l", "un"}})
			if !strings.Contains(r.stdout, "web-a\n") || !strings.Contains(r.stdout, "web-b\n") {
				return errors.New(r.String())
			}
			return nil
		})
		s.must(t, "salt-key", "-A", "-y")
	}
	for _, s := range p.sides() {
		s.waitMinions(t)
	}
	return p
}

// waitMinions waits until both minions answer and have sent their grains.
func (s *side) waitMinions(t *testing.T) {
	t.Helper()
	timeout := 1
	e2e.Eventually(t, 60*time.Second, "minions at "+s.kind, func() error {
		r := s.call(t, "salt", call{args: []string{"-t", strconv.Itoa(timeout), "--static", "--out=txt", "*",
			"test.ping"}})
		timeout = min(2*timeout, 16) // a slow minion answers late, and each ping makes it slower
		if r.stdout != "web-a: True\nweb-b: True\n" && r.stdout != "web-b: True\nweb-a: True\n" {
			// a minion that asks just as its key is accepted becomes pending again
			if s.kind == "salt" {
				s.call(t, "salt-key", call{args: []string{"-A", "-y"}})
			}
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}
