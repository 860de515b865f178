package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program started by a test. It has its own process group, so signals reach it and its
// children and nothing else.
type Process struct {
	Name   string
	Output string // file with its stdout and stderr; restarts append

	mu   sync.Mutex
	test string // started it first, ends it, and is charged its time
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	code int

	asked bool // End let it end by itself
}

// Start runs the program. It ends with the test that started it first, even if a subtest restarts
// it.
func (p *Process) Start(t testing.TB, path string, args ...string) {
	t.Helper()
	out, err := os.OpenFile(p.Output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && !closed(p.done) {
		t.Fatalf("%s runs already", p.Name)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	if p.test == "" {
		p.test = testOf(t)
		t.Cleanup(p.End)
	}
	charge(p.test, path, cmd.Process.Pid)
	go func() {
		err := cmd.Wait()
		discharge(cmd.Process.Pid, cmd.ProcessState)
		var exit *exec.ExitError
		p.mu.Lock()
		switch {
		case err == nil:
			p.code = 0
		case errors.As(err, &exit):
			p.code = exit.ExitCode()
		default:
			p.code = -1
		}
		p.mu.Unlock()
		close(done)
	}()
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Running reports whether the process is alive (a frozen one is).
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && !closed(p.done)
}

// PID is the process id, also after the process's end.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Signal sends s to the process and its children.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if !p.Running() {
		t.Fatalf("%s doesn't run, so it gets no %v", p.Name, s)
	}
	if err := syscall.Kill(-p.PID(), s); err != nil {
		t.Fatalf("send %v to %s: %v", s, p.Name, err)
	}
}

// Wait returns the exit code if the process ends in time, as OnceLate counts it, or -1 if a signal
// ended it.
func (p *Process) Wait(limit time.Duration) (int, error) {
	p.mu.Lock()
	done, test := p.done, p.test
	p.mu.Unlock()
	late := make(chan struct{})
	defer onceLate(test, limit, func() { close(late) })()
	select {
	case <-done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.code, nil
	case <-late:
		return 0, fmt.Errorf("%s still runs after %v", p.Name, limit)
	}
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGKILL)
	if _, err := p.Wait(10 * time.Second); err != nil {
		t.Fatal(err)
	}
}

// Freeze stops the process as SIGSTOP does: its connections stay open and nothing answers.
func (p *Process) Freeze(t testing.TB) { t.Helper(); p.Signal(t, syscall.SIGSTOP) }

// Thaw lets a frozen process continue.
func (p *Process) Thaw(t testing.TB) { t.Helper(); p.Signal(t, syscall.SIGCONT) }

// Stop asks the process to end. It returns the exit code and the time it took, by a Stopwatch.
func (p *Process) Stop(t testing.TB, limit time.Duration) (code int, took time.Duration) {
	t.Helper()
	watch := StartWatch(t)
	p.Signal(t, syscall.SIGTERM)
	code, err := p.Wait(limit)
	if err != nil {
		t.Error(err)
		p.Kill(t)
		awaitReaped(p.PID())
	}
	return code, watch.Took()
}

// End ends the process in whatever state, with the rest of its group.
func (p *Process) End() {
	pid := p.PID()
	if pid == 0 {
		return
	}
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if !closed(done) {
		_ = syscall.Kill(-pid, syscall.SIGCONT)
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		select {
		case <-done:
			p.asked = true
		case <-time.After(Within(3 * time.Second)): // what is killed writes no coverage
		}
	}
	// Children of an ended process keep the group's number taken. So the number can't belong to
	// another process while this still finds one.
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	<-done
	awaitReaped(pid)
}

// awaitReaped waits until no process of a killed group is left. The first process of the machine
// reaps those whose parent is dead, and it may take its time; a minion that starts meanwhile with
// the same pid file would find itself running.
func awaitReaped(group int) {
	limit := time.NewTimer(Within(10 * time.Second))
	defer limit.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for syscall.Kill(-group, 0) == nil {
		select {
		case <-look.C:
		case <-limit.C:
			return
		}
	}
}

// Result is what a command printed and how it ended.
type Result struct {
	Command        string
	Stdout, Stderr string
	Code           int
	Took           time.Duration // by a Stopwatch
}

func (r Result) String() string {
	return fmt.Sprintf("$ %s\n(exit %d after %v)\n%s%s", r.Command, r.Code,
		r.Took.Round(time.Millisecond), r.Stdout, r.Stderr)
}

// commandLimit is when a hanging command is ended.
const commandLimit = 120 * time.Second

// Command runs a program to its end.
func Command(t testing.TB, path string, args ...string) Result {
	t.Helper()
	r, err := run(testOf(t), path, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run is Command for callers without a testing.TB. testOf names the test.
func run(test, path string, args ...string) (Result, error) {
	var stdout, stderr strings.Builder
	cmd := exec.Command(path, args...)
	// No token of whoever runs the tests counts, and none is left for other tests.
	cmd.Env = append(os.Environ(), "HOME=/nonexistent")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Stdin = strings.NewReader("")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	watch := startWatch(test, 0)
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("run %s: %w", path, err)
	}
	pid := cmd.Process.Pid
	charge(test, path, pid)
	stop := onceLate(test, commandLimit, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	err := cmd.Wait()
	stop()
	discharge(pid, cmd.ProcessState)
	r := Result{Command: strings.Join(append([]string{path}, args...), " "),
		Stdout: stdout.String(), Stderr: stderr.String(), Took: watch.Took()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.Code = exit.ExitCode()
	case err != nil:
		return r, fmt.Errorf("run %s: %w", path, err)
	}
	if r.Code == -1 {
		return r, fmt.Errorf("ended by a signal, at the latest after %v\n%v", Within(commandLimit), r)
	}
	return r, nil
}

// tail is the end of a file.
func tail(path string, most int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return ""
		}
	}
	b, _ := io.ReadAll(f)
	return string(b)
}

// ShowOnFailure prints the ends of log files if the test fails.
func ShowOnFailure(t testing.TB, files ...string) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, f := range files {
			if text := tail(f, 12<<10); text != "" {
				t.Logf("==== end of %s\n%s", f, text)
			}
		}
	})
}

// ProcStatus is a line of /proc/PID/status, in fields.
func ProcStatus(t testing.TB, pid int, name string) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, is := strings.CutPrefix(line, name+":"); is {
			return strings.Fields(rest)
		}
	}
	t.Fatalf("/proc/%d/status has no %s", pid, name)
	return nil
}

// ProcNumber is the number in a line of /proc/PID/status: Threads, or memory in KiB.
func ProcNumber(t testing.TB, pid int, name string) int {
	t.Helper()
	n, err := strconv.Atoi(ProcStatus(t, pid, name)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
