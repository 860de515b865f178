package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clustermaster/test/e2e"
	"clustermaster/value"
)

// hangFolder makes all that looks into a folder wait until the returned function is called: a FUSE
// without a server is mounted on it, as a file server is that no longer answers.
func hangFolder(t *testing.T, dir string) (resume func()) {
	t.Helper()
	const needs = "needs root and FUSE, for a folder that hangs"
	if os.Geteuid() != 0 {
		t.Skip(needs)
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Logf("%v", err)
		t.Skip(needs)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse.Fd())
	if err := unix.Mount("hangs", dir, "fuse", 0, options); err != nil {
		fuse.Close()
		t.Logf("mount FUSE: %v", err)
		t.Skip(needs)
	}
	resume = sync.OnceFunc(func() {
		if err := errors.Join(unix.Unmount(dir, unix.MNT_DETACH), fuse.Close()); err != nil {
			t.Errorf("end the FUSE at %s: %v", dir, err)
		}
	})
	t.Cleanup(resume)
	return resume
}

// TestHangingFileRoots: the file server behind the file_roots of a master hangs. More requests for
// files wait there than the process could keep threads for, if each had one; it stays ready,
// minions sign in and return, keys are accepted, and health names the folder. It can be stopped and
// started meanwhile. When the file server is back, files are served.
func TestHangingFileRoots(t *testing.T) {
	t.Parallel()
	c := &cluster{Cluster: e2e.NewCluster(t, e2e.ClusterOptions{Masters: 2})}
	m := c.Masters[0]
	roots := filepath.Join(m.Dir, "srv")
	if err := os.WriteFile(filepath.Join(roots, "motd"), []byte("welcome"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.StartMasters(t)
	w := newWriter(t, c, []*e2e.Master{m})
	asks := w.minions[0]
	ask := func(ctx context.Context) (value.Raw, error) {
		return asks.ask(ctx, m, value.Map{{Key: "cmd", Value: "_file_hash"}, {Key: "id", Value: asks.id},
			{Key: "path", Value: "motd"}, {Key: "saltenv", Value: "base"}})
	}
	served := func() error {
		answer, err := ask(within(t, 10*time.Second))
		if err == nil && !answer.IsMap() {
			err = fmt.Errorf("answer %q", answer)
		}
		return err
	}
	e2e.Eventually(t, healed, "the file is served", served)
	before := e2e.ProcNumber(t, m.PID(), "Threads")

	resume := hangFolder(t, roots)
	const most, more = 500, 300 // serve/master: filesAtOnce
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting sync.WaitGroup
	for range most + more {
		waiting.Go(func() { _, _ = ask(ctx) })
	}
	e2e.Eventually(t, healed, "the requests wait", func() error {
		if n := metric(t, m, "clustermaster_readers_waiting", "files"); n < more/2 {
			return fmt.Errorf("%v wait for a place", n)
		}
		return nil
	})
	if n := e2e.ProcNumber(t, m.PID(), "Threads"); n < most || n > most+before+100 {
		t.Errorf("%d threads, %d before", n, before)
	}
	if err := m.Probe("/readyz"); err != nil {
		t.Errorf("not ready: %v", err)
	}
	accepted(t, m, "newcomer")
	w.write(t, 40, 100)
	e2e.Eventually(t, healed, "health names the folder", func() error {
		r := c.Masters[1].Runner(t, "cluster.health")
		if want := "file_roots: " + roots + " has not answered for"; r.Code != 1 || !strings.Contains(r.Stdout, want) {
			return fmt.Errorf("without %q: %v", want, r)
		}
		return nil
	})
	cancel()
	_, took := m.Stop(t, 30*time.Second)
	t.Logf("it ended after %v", took)
	waiting.Wait()
	m.Run(t)
	e2e.Eventually(t, healed, "it starts again meanwhile", m.Ready)

	resume()
	e2e.Eventually(t, healed, "the file is served again", served)
	e2e.Eventually(t, healed, "all is well", func() error {
		if r := m.Runner(t, "cluster.health"); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}
