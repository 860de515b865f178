package ringstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// sameDigests compares the digests of a store with its records.
func sameDigests(t *testing.T, what string, s *Store) {
	t.Helper()
	if err := s.disk.Probe().CheckDigests(); err != nil {
		t.Errorf("%s: %v", what, err)
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
