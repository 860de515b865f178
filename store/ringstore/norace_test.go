//go:build !race

package ringstore

// What is here counts what is read from a disk and needs a store of 60 MB. The race detector takes
// half a minute to fill it, and changes nothing that is counted.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/store/ringstore/diskfs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readFS counts the bytes that are read of table files.
type readFS struct {
	vfs.FS
	n atomic.Int64
}

type readFile struct {
	vfs.File
	n *atomic.Int64
}

func (f *readFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err == nil && strings.HasSuffix(name, ".sst") {
		file = readFile{file, &f.n}
	}
	return file, err
}

func (f readFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(b, at)
	f.n.Add(int64(n))
	return n, err
}

// A start reads no records: it takes next to no time however much is stored. CLUSTERMASTER_LONG
// makes the store 5 GB.
func TestStartReadsNoRecords(t *testing.T) {
	t.Parallel()
	records, size, long := 4000, 16<<10, os.Getenv("CLUSTERMASTER_LONG") != ""
	files := &readFS{FS: vfs.NewMem()}
	dir := "ring"
	if long {
		records, files.FS, dir = 5<<30/size, diskfs.Private{FS: vfs.Default}, t.TempDir()
	}
	opts := Options{FS: files}
	s, err := Open(dir, newAlone(), opts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			value := make([]byte, size)
			random := rand.NewChaCha8([32]byte{byte(w)})
			for i := w; i < records; i += 16 {
				random.Read(value)
				put := Put{Space: SpaceJobs, Name: "r", Value: value,
					Expires: time.Now().Add(24 * time.Hour), Exact: true}
				if _, err := s.Write(ctx, fmt.Sprintf("job%d", i), put); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if !long { // else compactions go on after the start, and read what they move
		if err := s.disk.Probe().Compact(ctx); err != nil {
			t.Fatal(err)
		}
	}
	want := s.disk.Digest(0, nil, true)
	last := s.clock.Read()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		files.n.Store(0)
		began := time.Now()
		if s, err = Open(dir, newAlone(), opts, nil, nil); err != nil {
			t.Fatal(err)
		}
		<-s.disk.Counted()
		if _, found, err := s.Get(ctx, Key{Space: SpaceJobs, Place: "job77",
			Name: "r"}); err != nil || !found {
			t.Errorf("after a start: %v, %v", found, err)
		}
		took := time.Since(began)
		if n, most := files.n.Load(), int64(records*size/20); n > most && !long {
			t.Errorf("round %d: the start read %d bytes of %d, want at most %d", round, n,
				records*size, most)
		}
		if long && took > 2*time.Second {
			t.Errorf("round %d: the start took %v", round, took)
		}
		t.Logf("start of a store of %d MB: %v, %d KB read", records*size>>20, took,
			files.n.Load()>>10)
		sameDigests(t, "after a start", s)
		if got := s.disk.Digest(0, nil, true); !slices.Equal(got, want) {
			t.Errorf("after a start: %d cells %v, want %d %v", len(got), got, len(want), want)
		}
		if s.clock.Read() < last {
			t.Errorf("the clock is at %d, before %d", s.clock.Read(), last)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
