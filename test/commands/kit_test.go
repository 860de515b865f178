package commands

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// reference is the release of Salt to compare with.
const reference = "3008.3"

// commandLimit is when a hanging command fails its test.
const commandLimit = 60 * time.Second

// command runs a command line to its end.
type command interface {
	run(t testing.TB, name string, c call) result
}

// call is a command line without the program's name.
type call struct {
	args  []string
	stdin string
	env   []string // NAME=value
	// unread: nobody reads standard output
	unread bool
}

// result is what a command printed and how it ended.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

// equal reports whether two results are the same except for their times.
func (r result) equal(o result) bool {
	return brief(r.stdout) == brief(o.stdout) && brief(r.stderr) == brief(o.stderr) &&
		r.code == o.code
}

func (r result) String() string {
	return fmt.Sprintf("exit %d after %v\nstdout:\n%s\nstderr:\n%s", r.code,
		r.took.Round(time.Millisecond), r.stdout, r.stderr)
}

// programs runs the programs of a folder.
type programs struct{ dir string }

func (p programs) run(t testing.TB, name string, c call) result {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.Command(filepath.Join(p.dir, name), c.args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), &stdout, &stderr
	cmd.Env = append(os.Environ(), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	if c.unread {
		r, w, err := os.Pipe()
		if err != nil {
			t.Error(err)
			return result{code: -1}
		}
		r.Close()
		defer w.Close()
		cmd.Stdout = w
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Errorf("run %s: %v", name, err)
		return result{code: -1}
	}
	ended := e2e.Charge(t, cmd)
	stop := e2e.OnceLate(t, commandLimit,
		func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	stop()
	ended()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Errorf("run %s: %v", name, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), time.Since(start)}
}

// library runs Salt's commands in forks of one process, which costs a third of starting each.
type library struct {
	dir  string // of the programs, for argv[0]
	temp string
	cmd  *exec.Cmd
	in   *os.File

	mu      sync.Mutex // guards next and waiting
	next    int
	waiting map[int]chan syscall.WaitStatus
}

// startLibrary starts the process; it ends with the test.
func startLibrary(t testing.TB, release string) *library {
	t.Helper()
	dir := filepath.Join(e2e.Venvs(t), "salt-"+release, "bin")
	requests, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, replies, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := &library{dir: dir, temp: e2e.Folder(t), in: in, waiting: map[int]chan syscall.WaitStatus{}}
	l.cmd = exec.Command(filepath.Join(dir, "python3"),
		filepath.Join("testdata", "salt_commands.py"))
	l.cmd.ExtraFiles = []*os.File{requests, replies}
	l.cmd.Stderr = os.Stderr
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.cmd.Start(); err != nil {
		t.Fatalf("start the library: %v", err)
	}
	requests.Close()
	replies.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			id, status, _ := strings.Cut(lines.Text(), " ")
			n, err1 := strconv.Atoi(id)
			s, err2 := strconv.Atoi(status)
			l.mu.Lock()
			c := l.waiting[n]
			delete(l.waiting, n)
			l.mu.Unlock()
			if err1 == nil && err2 == nil && c != nil {
				c <- syscall.WaitStatus(s)
			}
		}
	}()
	t.Cleanup(func() {
		in.Close()
		// the process was not waited for, so the number is still its own
		_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL)
		_ = l.cmd.Wait()
		<-ended
		out.Close()
	})
	return l
}

func (l *library) run(t testing.TB, name string, c call) result {
	t.Helper()
	l.mu.Lock()
	id := l.next
	l.next++
	done := make(chan syscall.WaitStatus, 1)
	l.waiting[id] = done
	l.mu.Unlock()
	path := func(what string) string {
		return filepath.Join(l.temp,
			fmt.Sprintf("%d.%s", id, what))
	}
	read := func(what string) string {
		b, err := os.ReadFile(path(what))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		return string(b)
	}
	if err := os.WriteFile(path("stdin"), []byte(c.stdin), 0o600); err != nil {
		t.Error(err)
		return result{code: -1}
	}
	env := map[string]string{"COLUMNS": "80"} // the width of its help
	for _, e := range c.env {
		k, v, _ := strings.Cut(e, "=")
		env[k] = v
	}
	b, err := json.Marshal(map[string]any{
		"id": id, "prog": name, "path": filepath.Join(l.dir, name),
		"args": append([]string{}, c.args...), "env": env, "unread": c.unread,
		"stdin": path("stdin"), "stdout": path("stdout"), "stderr": path("stderr"),
	})
	start := time.Now()
	if err == nil {
		_, err = l.in.Write(append(b, '\n'))
	}
	if err != nil {
		t.Errorf("ask the library: %v", err)
		return result{code: -1}
	}
	late := make(chan struct{})
	defer e2e.OnceLate(t, commandLimit, func() { close(late) })()
	select {
	case s := <-done:
		return result{read("stdout"), read("stderr"), s.ExitStatus(), time.Since(start)}
	case <-late:
		t.Errorf("%s %q still runs after %v\n%s%s", name, c.args, commandLimit, read("stdout"),
			read("stderr"))
		return result{code: -1}
	}
}
