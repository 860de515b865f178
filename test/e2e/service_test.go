package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// notifySocket receives what a service tells systemd.
type notifySocket struct {
	path string
	mu   sync.Mutex
	said []string
}

func listenNotify(t *testing.T, dir string) *notifySocket {
	t.Helper()
	s := &notifySocket{path: filepath.Join(dir, "notify")}
	l, err := net.ListenPacket("unixgram", s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, _, err := l.ReadFrom(buf)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.said = append(s.said, string(buf[:n]))
			s.mu.Unlock()
		}
	}()
	return s
}

// has reports whether the service sent a text, and how many messages came before it.
func (s *notifySocket) has(text string) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.said {
		if strings.Contains(m, text) {
			return i, true
		}
	}
	return len(s.said), false
}

func (s *notifySocket) waitFor(t *testing.T, text string) int {
	t.Helper()
	at := 0
	Eventually(t, 60*time.Second, "systemd is told "+text, func() error {
		var ok bool
		if at, ok = s.has(text); !ok {
			return fmt.Errorf("only %q", s.said)
		}
		return nil
	})
	return at
}

func fileHas(path, text string) func() error {
	return func() error {
		b, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(b), text) {
			err = errors.New("not in " + filepath.Base(path))
		}
		return err
	}
}

// TestService runs a master as systemd, logrotate and Kubernetes do.
func TestService(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 1})
	m := c.Masters[0]
	notify := listenNotify(t, m.Dir)
	alone := regexp.MustCompile(`(?m)^cluster_.*\n`).ReplaceAllString(m.Config(t), "")
	m.Configure(t, alone)
	pki := filepath.Join(m.Dir, "pki")
	for _, step := range []error{os.Mkdir(pki, 0o777), os.Chmod(pki, 0o777)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	m.Start(t, "/usr/bin/env", "NOTIFY_SOCKET="+notify.path, "WATCHDOG_USEC=1500000",
		"TMPDIR="+m.Dir, m.programs.Master, "-c", m.ConfDir)
	ready := notify.waitFor(t, "READY=1")
	if err := dial(m.Addr, RequestPort); err != nil {
		t.Errorf("READY=1 while the request port is shut: %v", err)
	}
	if first, _ := notify.has("STATUS="); first >= ready {
		t.Errorf("no STATUS= before READY=1: %q", notify.said)
	}
	if info, err := os.Stat(pki); err != nil {
		t.Error(err)
	} else if info.Mode().Perm() != 0o700 {
		t.Errorf("pki_dir has mode %v", info.Mode())
	}
	notify.waitFor(t, "STATUS=serving")
	notify.waitFor(t, "WATCHDOG=1")
	health := func(name string) string { return filepath.Join(m.Dir, "cache", "health", name) }
	for _, name := range []string{"startup", "ready", "alive"} {
		Eventually(t, 30*time.Second, "health file "+name, fileHas(health(name), "1"))
	}
	t.Run("RenamedLog", func(t *testing.T) { testRenamedLog(t, m) })
	t.Run("Reload", func(t *testing.T) { testReload(t, m, notify, alone) })
	t.Run("Stacks", func(t *testing.T) {
		m.Signal(t, syscall.SIGUSR1)
		Eventually(t, 30*time.Second, "the stacks are written", func() error {
			files, err := filepath.Glob(filepath.Join(m.Dir, "salt-debug-*.log"))
			if err == nil && len(files) == 0 {
				err = errors.New("no file")
			}
			if err != nil {
				return err
			}
			return fileHas(files[0], "goroutine ")()
		})
	})
	if code, _ := m.Stop(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	notify.waitFor(t, "STOPPING=1")
	if _, err := os.Stat(health("ready")); err == nil {
		t.Error("a stopped master's file ready is left")
	}
}

// testRenamedLog does what logrotate does, first without a signal, then with one.
func testRenamedLog(t *testing.T, m *Master) {
	for _, signal := range []bool{false, true} {
		old := m.Log + fmt.Sprint(".", signal)
		if err := os.Rename(m.Log, old); err != nil {
			t.Fatal(err)
		}
		if signal {
			m.Signal(t, syscall.SIGHUP)
		}
		Eventually(t, 30*time.Second, "lines go to the new file", func() error {
			if r := m.Key(t, "-L"); r.Code != 0 {
				return errors.New(r.String())
			}
			if conn, err := net.Dial("tcp",
				net.JoinHostPort(m.Addr, fmt.Sprint(RequestPort))); err == nil {
				fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n") // its failed hand-shake is logged
				conn.Close()
			}
			return fileHas(m.Log, "[")()
		})
	}
}

func testReload(t *testing.T, m *Master, notify *notifySocket, alone string) {
	m.Configure(t, alone+"log_fmt_logfile: json\nworker_threads: 7\n")
	m.Signal(t, syscall.SIGHUP)
	notify.waitFor(t, "RELOADING=1\nMONOTONIC_USEC=")
	Eventually(t, 30*time.Second, "the log tells of the reload",
		fileHas(m.Log, `"options":"worker_threads"`))
	b, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(string(b)) {
		var l struct {
			Message string
			Fields  map[string]any
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Message == "options reloaded" &&
			l.Fields["in_force"] == "log_fmt_logfile" {
			found = true
		}
	}
	if !found {
		t.Errorf("no JSON line about the reload in\n%s", tail(m.Log, 2000))
	}
	m.Configure(t, alone+"log_fmt_logfile: '%(massage)s'\n")
	m.Signal(t, syscall.SIGHUP)
	Eventually(t, 30*time.Second, "a wrong option is refused",
		fileHas(m.Log, "the old ones stay in force: "+filepath.Join(m.ConfDir, "master")+":"))
	if err := m.Ready(); err != nil {
		t.Error(err)
	}
}

// TestDaemon starts a master with -d, as older init scripts do.
func TestDaemon(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 1})
	m := c.Masters[0]
	alone := regexp.MustCompile(`(?m)^cluster_.*\n`).ReplaceAllString(m.Config(t), "")
	m.Configure(t, alone)
	above, conf := filepath.Split(m.ConfDir)
	log, err := filepath.Rel(above, m.Log)
	if err != nil {
		t.Fatal(err)
	}
	pidfile := filepath.Join(above, "below.pid")
	t.Cleanup(func() { endNamed(pidfile) })
	daemon := func(args ...string) (string, int) {
		ctx, cancel := Deadline(t, 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, m.programs.Master, append([]string{"-d"}, args...)...)
		cmd.Dir, cmd.Env = above, append(os.Environ(), "SALT_CONFIG_DIR="+conf)
		cmd.WaitDelay = 10 * time.Second // the deadline ends one process, both have the output
		out, _ := cmd.CombinedOutput()   // ends when no process has this output
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, tt := range []struct {
		code int
		says string
		args []string
	}{
		{67, "for user nosuch. The user is not available.", []string{"--user", "nosuch"}},
		{1, "make log folder", []string{"--log-file", filepath.Join(m.Dir, "etc", "master", "log")}},
	} {
		if out, code := daemon(tt.args...); code != tt.code || !strings.Contains(out, tt.says) {
			t.Errorf("%q: exit code %d\n%swant %d and %q", tt.args, code, out, tt.code, tt.says)
		}
	}
	if out, code := daemon("--pid-file", "below.pid", "--log-file", log); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	pid := 0
	Eventually(t, 60*time.Second, "the master in the background is ready", func() error {
		if b, err := os.ReadFile(pidfile); err != nil {
			return err
		} else if _, err := fmt.Sscan(string(b), &pid); err != nil {
			return err
		}
		return m.Probe("/readyz")
	})
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || dir != "/" {
		t.Errorf("its folder is %q (%v)", dir, err)
	}
	m.Configure(t, alone+"worker_threads: 7\n")
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 30*time.Second, "it finds its files again", fileHas(m.Log, "worker_threads"))
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 30*time.Second, "the master ends and takes its pidfile away", func() error {
		if _, err := os.Stat(pidfile); err == nil {
			return errors.New("the pidfile is there")
		}
		if syscall.Kill(pid, 0) == nil {
			return errors.New("it runs")
		}
		return nil
	})
}
