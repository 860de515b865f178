package pythonhost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wornModule leaves things behind.
const wornModule = `
import os
import threading
import time

kept = []

def process():
    return os.getpid()

def thread():
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    return os.getpid()

def memory():
    kept.append(b"x" * (200 << 20))
    return os.getpid()

def surroundings():
    before = [os.getcwd(), os.umask(0o123), os.environ.get("SITE"), os.getpid()]
    os.chdir("/proc")
    os.environ["SITE"] = "here"
    return before

def detached():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
            os.close(writing)
            time.sleep(60)
        os._exit(0)
    os.close(writing)
    return int(os.read(reading, 20))

def late():
    time.sleep(60)
`

// umask returns the mask of this process, which its children inherit.
func umask(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\nUmask:\t")
	text, _, _ = strings.Cut(text, "\n")
	n, err := strconv.ParseInt(text, 8, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSpareChildren looks at which children serve another minion, and as what they do so.
func TestSpareChildren(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, release, map[string]string{"ext/modules/worn.py": wornModule},
				func(o *Options) { o.Timeout = 20 * time.Second })
			n := 0
			ask := func(fun string) any {
				n++
				session := s.host.Session(minion(fmt.Sprint("web", n)))
				defer session.Close()
				if fun == "worn.late" {
					limited := Call{Kind: Module, Fun: fun, Limit: time.Second, LimitOption: "limit"}
					_, err := session.Call(t.Context(), limited)
					return err
				}
				return call(t, session, fun)
			}
			first := ask("worn.process")
			if next := ask("worn.process"); next != first {
				t.Errorf("process %v after %v, want the same", next, first)
			}
			for range 2 {
				if got, want := fmt.Sprint(ask("worn.surroundings")),
					fmt.Sprint([]any{"/", umask(t), nil, first}); got != want {
					t.Errorf("surroundings %s, want %s", got, want)
				}
			}
			pid, _ := ask("worn.detached").(int64)
			if err := syscall.Kill(int(pid), 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process %d that a call detached: %v", pid, err)
			}
			// A changed module counts at once.
			path := filepath.Join(s.root, "ext/modules/worn.py")
			if err := os.WriteFile(path, []byte(wornModule+"\ndef more():\n    return os.getpid()\n"),
				0o644); err != nil {
				t.Fatal(err)
			}
			if got := ask("worn.more"); got != first {
				t.Errorf("the new function ran in %v, want %v", got, first)
			}
			for _, fun := range []string{"worn.thread", "worn.memory", "worn.late"} {
				before := ask("worn.process")
				ask(fun)
				if after := ask("worn.process"); after == before {
					t.Errorf("the child is used again after %s", fun)
				}
			}
			wait(t, "spare children end", func() bool {
				s.host.mu.Lock()
				defer s.host.mu.Unlock()
				return len(s.host.spare) == 0
			})
		})
	}
}
