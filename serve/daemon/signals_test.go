package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/config"
	"clustermaster/serve/health"
)

const signalsEnv = "CLUSTERMASTER_TEST_SIGNALS"

// TestSignals: SIGUSR2 ends nothing, no signal waits for a reload that hangs, and the pidfile goes
// also when a second signal ends the process at once. A process of its own gets the signals.
func TestSignals(t *testing.T) {
	if dir := os.Getenv(signalsEnv); dir != "" {
		signalled(t, dir)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "master"), "timeout: 7\n")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=TestSignals$")
	cmd.Env = append(os.Environ(), signalsEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"SIGUSR2 does nothing", "stopped: received a SIGTERM"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v; want %q\n%s", err, want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
		t.Error("the pidfile is left")
	}
}

// signalled ends the process.
func signalled(t *testing.T, dir string) {
	pidfile := filepath.Join(dir, "pid")
	if err := writePidfile(pidfile); err != nil {
		t.Fatal(err)
	}
	r, _ := running(t, dir)
	hangs := make(chan struct{})
	r.live = func(*config.Options, []string) ([]string, []func(), error) {
		close(hangs)
		select {}
	}
	lines := make(chan string, 10)
	log := slog.New(slog.NewTextHandler(said(lines), nil))
	ctx, stop := context.WithCancelCause(t.Context())
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		watchSignals(ctx, stop, health.NewSystemd(log), r, pidfile, log)
	}()
	send := func(s syscall.Signal) {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	early := make(chan os.Signal, 1) // before watchSignals listens, SIGHUP would end the process
	signal.Notify(early, syscall.SIGHUP)
	for waits := true; waits; {
		send(syscall.SIGHUP)
		select {
		case <-hangs:
			waits = false
		case <-time.After(10 * time.Millisecond):
		}
	}
	send(syscall.SIGUSR2)
	os.Stderr.WriteString(<-lines)
	send(syscall.SIGTERM)
	<-ctx.Done()
	os.Stderr.WriteString("stopped: " + context.Cause(ctx).Error() + "\n")
	send(syscall.SIGTERM)
	<-watching
}

// said is a writer of lines.
type said chan string

func (s said) Write(b []byte) (int, error) {
	s <- string(b)
	return len(b), nil
}
