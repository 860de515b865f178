package disk

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Who gives up waiting for the committer shares nothing with it any more. The race detector sees
// what is wrong here.
func TestGivenUpOrders(t *testing.T) {
	t.Parallel()
	d, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(1); err != nil {
		t.Fatal(err)
	}
	w := &Write{Epoch: 1, Changes: []Change{{Record: Record{Key: Key{1, "p", "n"},
		Value: []byte("value"), Version: Version{1, 1}}}}}
	if err := d.Commit(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	given, stop := context.WithCancel(t.Context())
	stop()
	for n := range 200 {
		_, err := d.dropCells(given, nil, 1)
		_, mended := d.mendCell(given, CellID{}, cell{}, cell{})
		_, refilled := d.EndRefill(given, func() bool { return true })
		for _, err := range []error{err, mended, refilled} {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%d: %v", n, err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// faultyFS is a file system in memory that asks before each sync whether, and when, it may succeed.
type faultyFS struct {
	vfs.FS
	sync func() error
}

type faultyFile struct {
	vfs.File
	sync func() error
}

func (f faultyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return faultyFile{file, f.sync}, err
}

func (f faultyFile) Sync() error {
	if err := f.sync(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f faultyFile) SyncData() error { return f.Sync() }

// TestWriting: Options.Writing is told of a write until it is on stable storage.
func TestWriting(t *testing.T) {
	t.Parallel()
	var gate sync.RWMutex
	var under atomic.Int64
	wait := func() error {
		gate.RLock()
		defer gate.RUnlock()
		return nil
	}
	d, err := Open("ring", Options{FS: faultyFS{vfs.NewMem(), wait}, Writing: func() func() {
		under.Add(1)
		return func() { under.Add(-1) }
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Start(1); err != nil {
		t.Fatal(err)
	}
	if n := under.Load(); n != 0 {
		t.Errorf("after the start: %d", n)
	}
	gate.Lock()
	release := sync.OnceFunc(gate.Unlock)
	defer release()
	done := make(chan error, 1)
	go func() {
		done <- d.Commit(context.Background(), &Write{Epoch: 1, Changes: []Change{{Record: Record{
			Key: Key{1, "p", "n"}, Value: []byte("value"), Version: Version{1, 1}}}}})
	}()
	for limit := time.After(time.Minute); under.Load() != 1; {
		select {
		case err := <-done:
			t.Fatalf("it ended before its sync: %v", err)
		case <-limit:
			t.Fatal("nothing was told")
		case <-time.After(time.Millisecond):
		}
	}
	release()
	if err := <-done; err != nil || under.Load() != 0 {
		t.Errorf("afterwards: %v, %d under way", err, under.Load())
	}
}

// TestRefusingDevice: a device that refuses a sync ends the process, with a line that says what to
// do. What was written before may be lost, and a later sync would not say so.
func TestRefusingDevice(t *testing.T) {
	const child = "CLUSTERMASTER_TEST_REFUSING"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRefusingDevice$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("the device refuses the ring store's writes")) ||
			bytes.Contains(out, []byte("it goes on")) {
			t.Errorf("it ended with %v: %s", err, out)
		}
		return
	}
	var refuses atomic.Bool
	refuse := func() error {
		if refuses.Load() {
			return syscall.EIO
		}
		return nil
	}
	d, err := Open("ring", Options{FS: faultyFS{vfs.NewMem(), refuse},
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(1); err != nil {
		t.Fatal(err)
	}
	refuses.Store(true)
	err = d.Commit(t.Context(), &Write{Epoch: 1, Changes: []Change{{Record: Record{
		Key: Key{1, "p", "n"}, Value: []byte("value"), Version: Version{1, 1}}}}})
	t.Fatal("it goes on:", err)
}
