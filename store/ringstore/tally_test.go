package ringstore

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

	"github.com/cockroachdb/pebble/v2"
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

// sameDigests compares the digests of a store with its records.
func sameDigests(t *testing.T, what string, s *Store) {
	t.Helper()
	if err := s.disk.Probe().CheckDigests(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
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

// The digests on disk are right after writes, deletions, expiry and another program's opening.
func TestDigestsAreKept(t *testing.T) {
	t.Parallel()
	mem, now := vfs.NewMem(), &shiftClock{}
	opts := Options{FS: mem, Now: now.Now, TombstoneFor: time.Minute, BucketWidth: time.Minute}
	ctx := t.Context()
	for round := range 6 {
		s, err := Open("ring", newAlone(), opts, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		<-s.disk.Counted()
		sameDigests(t, fmt.Sprintf("start %d", round), s)
		for i := range 40 {
			k := Key{Space: SpaceMinions, Place: fmt.Sprintf("m%d", i), Name: "grains"}
			if err := s.Put(ctx, k, []byte(fmt.Sprint(round)), time.Time{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Put(ctx, Key{Space: SpaceJobs, Place: fmt.Sprintf("j%d-%d", round, i),
				Name: "r"}, nil,
				now.Now().Add(90*time.Second)); err != nil {
				t.Fatal(err)
			}
			if i%3 == round%3 {
				if err := s.Delete(ctx, k.Space, k.Place, k.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		now.add(100 * time.Second)
		if err := s.expire(ctx); err != nil {
			t.Fatal(err)
		}
		sameDigests(t, fmt.Sprintf("end of %d", round), s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if round == 3 { // as an older release does, which knows of no digests
			db, err := pebble.Open("ring", &pebble.Options{FS: mem, Logger: quietLog{}})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.DeleteRange([]byte("d\xff\xff\xff\xff\xff\xff\xff\xff"), []byte("e"),
				pebble.Sync); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A machine that loses power has on disk all that was acknowledged, and digests that fit the
// records.
func TestPowerLossKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	for round := range 4 {
		s, err := Open("ring", newAlone(), Options{FS: mem, MemTableBytes: 64 << 10}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		<-s.disk.Counted()
		sameDigests(t, "after a power loss", s)
		ctx := t.Context()
		for r := range round {
			for i := range 200 {
				k := Key{Space: SpaceJobs, Place: fmt.Sprintf("j%d-%d", r, i), Name: "r"}
				if got, found, err := s.Get(ctx, k); err != nil || !found ||
					string(got.Value) != k.Place {
					t.Fatalf("round %d: %v was acknowledged: %v, %v", round, k, found, err)
				}
			}
		}
		if v := s.view.Load(); round > 0 && (v == nil || v.Latest().Epoch() != 1) {
			t.Errorf("round %d: the ring that was taken over is gone", round)
		}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := w; i < 200; i += 8 {
					place := fmt.Sprintf("j%d-%d", round, i)
					if err := s.Put(ctx, Key{Space: SpaceJobs, Place: place, Name: "r"},
						[]byte(place),
						time.Time{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * (round % 2),
			RNG: rand.New(rand.NewPCG(uint64(round), 1))})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mem = crashed
	}
}
