package ringstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fullFS is a file system in memory that can be full: then a write stores half of what it is given.
type fullFS struct {
	vfs.FS
	full    atomic.Bool
	refused atomic.Int64
}

type fullFile struct {
	vfs.File
	fs *fullFS
}

func (f *fullFS) make(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return fullFile{file, f}, nil
}

func (f *fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.full.Load() {
		f.refused.Add(1)
		return nil, &vfsError{name}
	}
	return f.make(f.FS.Create(name, c))
}

func (f *fullFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.make(f.FS.ReuseForWrite(from, to, c))
}

func (f fullFile) Write(b []byte) (int, error) {
	if !f.fs.full.Load() {
		return f.File.Write(b)
	}
	f.fs.refused.Add(1)
	n, err := f.File.Write(b[:len(b)/2])
	return n, errors.Join(err, &vfsError{"file"})
}

type vfsError struct{ name string }

func (e *vfsError) Error() string { return e.name + ": full" }
func (e *vfsError) Unwrap() error { return syscall.ENOSPC }

// On a full disk writes wait, nothing ends, reads go on; with space again everything that was taken
// is there, also after the store was opened anew.
func TestFullDiskWaits(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	disk := &fullFS{FS: mem}
	opts := Options{FS: disk, MemTableBytes: 64 << 10}
	s, err := Open("ring", newAlone(), opts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	put := func(ctx context.Context, n int) error {
		return s.Put(ctx, Key{Space: SpaceJobs, Place: fmt.Sprintf("p%d", n), Name: "n"},
			make([]byte, 4096),
			time.Time{})
	}
	for n := range 10 {
		if err := put(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	disk.full.Store(true)
	done := make(chan error)
	for n := 10; n < 60; n++ { // more than a memtable
		go func() { done <- put(ctx, n) }()
	}
	eventually(t, "writes meet the full disk", func() error {
		if disk.refused.Load() < 5 {
			return errors.New("not yet")
		}
		return nil
	})
	select {
	case err := <-done:
		t.Fatalf("a write ended on a full disk: %v", err)
	default:
	}
	if _, found, err := s.Get(ctx, Key{Space: SpaceJobs, Place: "p3", Name: "n"}); err != nil ||
		!found {
		t.Errorf("read on a full disk: %v, %v", found, err)
	}
	disk.full.Store(false)
	for range 50 {
		if err := <-done; err != nil {
			t.Errorf("write after there is space again: %v", err)
		}
	}
	for range 2 {
		for n := range 60 {
			if _, found, err := s.Get(ctx,
				Key{Space: SpaceJobs, Place: fmt.Sprintf("p%d", n), Name: "n"}); err != nil ||
				!found {
				t.Errorf("p%d is found %v, %v", n, found, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open("ring", newAlone(), opts, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
}

// Without room records are refused, and their deletion is not; when there is room they are taken
// again.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	low := errors.New("disk: low")
	s, err := Open(t.TempDir(), newAlone(), Options{Room: func() error {
		if full.Load() {
			return low
		}
		return nil
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, k := t.Context(), Key{Space: SpaceMinions, Place: "p", Name: "n"}
	if err := s.Put(ctx, k, []byte("1"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	if err := s.Put(ctx, k, []byte("2"), time.Time{}); !errors.Is(err, low) {
		t.Errorf("a record without room: %v", err)
	}
	if got, _, err := s.Get(ctx, k); err != nil || string(got.Value) != "1" {
		t.Errorf("after the refusal: %q, %v", got.Value, err)
	}
	if err := s.Delete(ctx, k.Space, k.Place, k.Name); err != nil {
		t.Errorf("deletion without room: %v", err)
	}
	full.Store(false)
	if err := s.Put(ctx, k, []byte("3"), time.Time{}); err != nil {
		t.Errorf("a record with room again: %v", err)
	}
}

// A cluster with one full disk goes on with the two others, and the full one is made up for when it
// has room again.
func TestOneFullDiskOfThree(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	k := newKit(t)
	k.setRing("a", "b", "c")
	k.start("a")
	k.start("b")
	k.opts.Room = func() error {
		if full.Load() {
			return errors.New("disk: low")
		}
		return nil
	}
	c := k.start("c")
	k.settled()
	full.Store(true)
	ctx := t.Context()
	var keys []Key
	for n := range 50 {
		key := Key{Space: SpaceJobs, Place: fmt.Sprintf("p%d", n), Name: "n"}
		keys = append(keys, key)
		if err := k.store("abc"[n%3:n%3+1]).Put(ctx, key, []byte("v"), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range keys {
		if c.holds(key) {
			t.Fatalf("the full disk took %v", key)
		}
		if _, found, err := c.store.Get(ctx, key); err != nil || !found {
			t.Errorf("%v by way of the full one: %v, %v", key, found, err)
		}
	}
	eventually(t, "the others know that it refuses", func() error {
		for _, n := range k.store("a").Info().Nodes {
			if n.Node == "c" && n.Refuses == "disk: low" {
				return nil
			}
		}
		return errors.New("not yet")
	})
	full.Store(false)
	eventually(t, "it gets what it lacks", func() error {
		for _, key := range keys {
			if !c.holds(key) {
				return fmt.Errorf("%v is not there", key)
			}
		}
		return nil
	})
}

// TestAbsentOwnersOfAFullDisk: an owner with a full disk, cut off from all others, takes a record.
// A stand-in comes back first and keeps its copy. The other owners get theirs all the same, long
// before copies are compared.
func TestAbsentOwnersOfAFullDisk(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	k := newKit(t)
	k.opts.RepairEvery, k.opts.ScrubEvery = time.Hour, time.Hour
	names := []string{"a", "b", "c", "d"}
	k.setRing(names...)
	key := Key{Space: SpaceJobs, Place: "place", Name: "n"}
	owners := k.ring.Owners(k.ring.Partition(key.Place))
	standIn := names[slices.IndexFunc(names, func(n string) bool { return !slices.Contains(owners, n) })]
	self := owners[0]
	for _, n := range names {
		if k.opts.Room = nil; n == self {
			k.opts.Room = func() error {
				if full.Load() {
					return errors.New("space is low")
				}
				return nil
			}
		}
		k.start(n)
	}
	k.settled()
	full.Store(true)
	k.isolate(self, true)
	put := make(chan error, 1)
	go func() { put <- k.store(self).Put(t.Context(), key, []byte("v"), time.Time{}) }()
	select {
	case err := <-put:
		t.Fatalf("a master without room and without others takes it: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	k.mu.Lock()
	delete(k.cut, [2]string{self, standIn})
	delete(k.cut, [2]string{standIn, self})
	k.mu.Unlock()
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	k.isolate(self, false)
	hasCopy := func(o string) {
		t.Helper()
		eventually(t, "copy of "+o, func() error {
			if !k.node(o).holds(key) {
				return errors.New("not there")
			}
			return nil
		})
	}
	hasCopy(owners[1])
	hasCopy(owners[2])
	full.Store(false)
	hasCopy(self)
}
