package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Minion is a real salt-minion process.
type Minion struct {
	Process
	ID, Release string
	Dir         string
	Log         string // its log file, level debug

	program, confDir string
}

// MinionOptions are what a test may choose. Extra is YAML.
type MinionOptions struct {
	ID      string
	Release string
	Master  string // address of the balancer
	Extra   string
}

// NewMinion writes the minion's configuration; Run starts it.
func NewMinion(t testing.TB, dir string, o MinionOptions) *Minion {
	t.Helper()
	m := &Minion{ID: o.ID, Release: o.Release, Dir: filepath.Join(dir, o.ID)}
	m.program = filepath.Join(Venvs(t), "salt-"+o.Release, "bin", "salt-minion")
	m.confDir = filepath.Join(m.Dir, "etc")
	m.Log = filepath.Join(m.Dir, "minion.log")
	m.Process = Process{Name: "salt-minion " + m.ID, Output: filepath.Join(m.Dir, "output.log")}
	for _, d := range []string{m.confDir, filepath.Join(m.Dir, "pki"),
		filepath.Join(m.Dir, "run")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	conf := fmt.Sprintf(`id: %s
master: %s
root_dir: %s
pki_dir: %s
sock_dir: %s
log_file: %s
log_level: error
log_level_logfile: debug
acceptance_wait_time: 1
enable_fqdns_grains: False
enable_gpu_grains: False
grains: {e2e: %s}
%s`, m.ID, o.Master, m.Dir, filepath.Join(m.Dir, "pki"), filepath.Join(m.Dir, "run"), m.Log, o.Release, o.Extra)
	if err := os.WriteFile(filepath.Join(m.confDir, "minion"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	ShowOnFailure(t, m.Log, m.Output)
	return m
}

// Run starts the minion.
func (m *Minion) Run(t testing.TB) {
	t.Helper()
	m.Start(t, m.program, "-c", m.confDir)
}

// LogSize is the present length of the log, for a look at what comes after.
func (m *Minion) LogSize() int64 {
	st, err := os.Stat(m.Log)
	if err != nil {
		return 0
	}
	return st.Size()
}

// LogSince is the log from an offset on.
func (m *Minion) LogSince(t testing.TB, offset int64) string {
	t.Helper()
	b, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(b)) < offset {
		offset = 0
	}
	return string(b[offset:])
}

// signIn is what all releases log for each `_auth` that was answered with a session.
const signIn = "Decrypting the current master AES key"

// SignIns counts the successful sign-ins in the log from an offset on.
func (m *Minion) SignIns(t testing.TB, offset int64) int {
	t.Helper()
	return strings.Count(m.LogSince(t, offset), signIn)
}

// Losses counts in the log, from an offset on, how often the minion noticed the end of its publish
// session and started over with that master. Releases that leave this to ZeroMQ log nothing and
// keep their session key.
func (m *Minion) Losses(t testing.TB, offset int64) int {
	t.Helper()
	return len(lossForm.FindAllString(m.LogSince(t, offset), -1))
}

var lossForm = regexp.MustCompile(`Connection to master \S+ lost`)

var complaint = regexp.MustCompile(`(?m)^\S+ \S+ \[[^\]]*\]\[(?:ERROR|CRITICAL) *\].*$`)

// Errors are the error lines of the log from an offset on, except what Python's asyncio says about
// its own tasks: minions of 3008 log that with Salt's own master too.
func (m *Minion) Errors(t testing.TB, offset int64) []string {
	t.Helper()
	lines := complaint.FindAllString(m.LogSince(t, offset), -1)
	return slices.DeleteFunc(lines, func(s string) bool { return strings.Contains(s, "[asyncio ") })
}

// WaitFor waits until the log from an offset on contains a text.
func (m *Minion) WaitFor(t testing.TB, limit time.Duration, offset int64, text string) {
	t.Helper()
	Eventually(t, limit, m.ID+" logs "+text, func() error {
		if !strings.Contains(m.LogSince(t, offset), text) {
			return fmt.Errorf("not there")
		}
		return nil
	})
}
