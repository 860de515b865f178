package ringstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"clustermaster/store/ringstore/disk"
)

// TestWritesFollowThoseOfAFastClock writes records with a clock that is ahead, and then with the
// right one.
func TestWritesFollowThoseOfAFastClock(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	for i, ahead := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		key := Key{Space: SpaceMinions, Place: fmt.Sprintf("web%d", i), Name: "grains"}
		k.now.add(ahead)
		if err := k.store("m1/a").Put(ctx, key, []byte("tomorrow"), time.Time{}); err != nil {
			t.Fatal(err)
		}
		k.now.add(-ahead)
		k.node("m2/b").kill()
		k.start("m2/b") // knows nothing of the fast clock
		k.settled()
		for n, name := range []string{"m2/b", "m3/c", "m2/b"} {
			value := fmt.Sprintf("%d of today", n)
			if err := k.store(name).Put(ctx, key, []byte(value), time.Time{}); err != nil {
				t.Fatalf("%v ahead: write %d: %v", ahead, n, err)
			}
			for _, reader := range []string{"m1/a", "m2/b", "m3/c"} {
				if got, found, err := k.store(reader).Get(ctx, key); err != nil || !found ||
					string(got.Value) != value {
					t.Errorf("%v ahead: %s reads %q, %t, %v; want %q", ahead, reader, got.Value,
						found, err, value)
				}
			}
		}
		if err := k.store("m2/b").Delete(ctx, key.Space, key.Place, key.Name); err != nil {
			t.Errorf("%v ahead: delete: %v", ahead, err)
		}
		if _, found, err := k.store("m3/c").Get(ctx, key); found || err != nil {
			t.Errorf("%v ahead: deleted, and found: %t, %v", ahead, found, err)
		}
	}
}

// A clock was far ahead, and several writes at one moment must beat its version. No two get the
// same version: owners would disagree, as each keeps the write that arrives first.
func TestWritesThatAreRaisedDiffer(t *testing.T) {
	t.Parallel()
	clock := &shiftClock{}
	s, err := Open(t.TempDir(), newAlone(), Options{Now: clock.Now}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ctx := t.Context()
	key := Key{Space: SpaceMinions, Place: "web1", Name: "grains"}
	clock.add(time.Hour)
	if err := s.Put(ctx, key, []byte("tomorrow"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	clock.add(-time.Hour)
	const writers = 16
	var versions [writers]Version
	var g errgroup.Group
	for i := range writers {
		g.Go(func() error {
			for {
				results, err := s.Write(ctx, key.Place, Put{Space: key.Space, Name: key.Name,
					Value: fmt.Append(nil, i)})
				if errors.Is(err, ErrContended) {
					continue
				}
				if err == nil {
					versions[i] = results[0].Version
				}
				return err
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	got, found, err := s.Get(ctx, key)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	by := map[Version]int{}
	for i, v := range versions {
		if other, twice := by[v]; twice {
			t.Errorf("writers %d and %d have the version %v", other, i, v)
		}
		by[v] = i
	}
	if writer, known := by[got.Version]; !known || string(got.Value) != fmt.Sprint(writer) {
		t.Errorf("the record is %q in version %v", got.Value, got.Version)
	}
	if ahead := got.Version.Time().Sub(clock.Now()); ahead > time.Hour+time.Second {
		t.Errorf("the version is %v ahead", ahead)
	}
}

// TestAClockThatWasFarAheadIsForgotten writes one record while a master's clock is hours ahead, and
// deletes another one when it is right again. A master that knows nothing of that, and is alone,
// writes later and wins.
func TestAClockThatWasFarAheadIsForgotten(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	ctx := t.Context()
	k.setRing("m1/a", "m2/b", "m3/c")
	k.start("m2/b")
	k.start("m3/c")
	fast := &shiftClock{}
	k.opts.Now = fast.Now
	k.start("m1/a")
	k.settled()
	key := Key{Space: SpaceMinions, Place: "web1", Name: "grains"}
	put := func(name string, key Key, value string) {
		t.Helper()
		if err := k.store(name).Put(ctx, key, []byte(value), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	put("m1/a", key, "first")
	fast.add(10 * time.Hour)
	put("m1/a", Key{Space: SpaceMinions, Place: "web2", Name: "grains"}, "tomorrow")
	fast.add(-10 * time.Hour)
	k.settled()
	k.isolate("m3/c", true)
	if err := k.store("m1/a").Delete(ctx, key.Space, key.Place, key.Name); err != nil {
		t.Fatal(err)
	}
	put("m3/c", key, "second")
	k.isolate("m3/c", false)
	k.settled()
	for _, reader := range []string{"m1/a", "m2/b", "m3/c"} {
		if got, found, err := k.store(reader).Get(ctx, key); err != nil || !found ||
			string(got.Value) != "second" {
			t.Errorf("%s reads %q, %t, %v", reader, got.Value, found, err)
		}
	}
}

// TestExpiredRecordsAreRefused writes through a master whose clock is days behind, and brings
// expired copies together.
func TestExpiredRecordsAreRefused(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.opts.WriteTimeout = 200 * time.Millisecond
	k.setRing("m1/a", "m2/b", "m3/c")
	k.start("m1/a")
	k.start("m2/b")
	k.opts.Now = func() time.Time { return k.now.Now().Add(-48 * time.Hour) }
	k.start("m3/c")
	k.settled()
	ctx := t.Context()
	key := Key{Space: SpaceJobs, Place: "20261121093824128016", Name: "ret/web1"}
	put := func(writer string, expires time.Time) error {
		_, err := k.store(writer).Write(ctx, key.Place, Put{Space: key.Space, Name: key.Name,
			Value: []byte("v"), Expires: expires, First: true, Exact: true})
		return err
	}
	if err := put("m1/a", k.now.Now().Add(-time.Minute)); !errors.Is(err, disk.ErrExpired) {
		t.Errorf("expired for the writer: %v", err)
	}
	// The writer's clock allows a day more, the two others' do not.
	if err := put("m3/c", k.now.Now().Add(-24*time.Hour)); err == nil ||
		!strings.Contains(err.Error(), disk.ErrExpired.Error()) {
		t.Errorf("expired for two of three owners: %v", err)
	}
	s := k.store("m1/a")
	v := s.view.Load()
	for _, to := range []string{"m1/a", "m2/b"} {
		if err := s.give(ctx, v, to, []disk.Change{{Record: Record{Key: key, Value: []byte("v"),
			Version: Version{Clock: s.clock.Next(), Node: s.node}, Partition: s.partitionOf(key),
			Expires: k.now.Now().Add(-time.Hour).Truncate(time.Second),
			Flags:   disk.FlagFirst}}}); err != nil {
			t.Errorf("copy an expired record to %s: %v", to, err)
		}
		if k.node(to).holds(key) {
			t.Errorf("%s keeps an expired record", to)
		}
	}
	// A clock that is ahead, on one owner, costs no write.
	k.node("m3/c").kill()
	k.opts.Now = func() time.Time { return k.now.Now().Add(48 * time.Hour) }
	k.start("m3/c")
	k.settled()
	if err := put("m1/a", k.now.Now().Add(24*time.Hour)); err != nil {
		t.Errorf("expired for one of three owners: %v", err)
	}
}

// TestAnUnjudgedClockDropsNothing starts a master whose clock is ahead until it is compared.
func TestAnUnjudgedClockDropsNothing(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	key := func(n int) Key {
		return Key{Space: SpaceJobs, Place: fmt.Sprintf("job%d", n), Name: "ret/web1"}
	}
	put := func(n int) {
		t.Helper()
		if err := k.store("m1/a").Put(ctx, key(n), []byte("v"),
			k.now.Now().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	const before, all = 20, 40
	for n := range before {
		put(n)
	}
	holds := func(c *kitNode, some int) {
		t.Helper()
		eventually(t, "it has all records", func() error {
			for n := range some {
				if !c.holds(key(n)) {
					return fmt.Errorf("job%d is not there", n)
				}
			}
			return nil
		})
	}
	holds(k.node("m3/c"), before) // the third copy may still be on its way
	k.node("m3/c").kill()
	k.notices("m1/a", "m3/c")
	for n := before; n < all; n++ {
		put(n)
	}
	var judged atomic.Bool
	var asked atomic.Int64 // since the others were heard
	k.opts.Now = func() time.Time {
		if judged.Load() {
			return k.now.Now()
		}
		return k.now.Now().Add(48 * time.Hour)
	}
	k.opts.ClockJudged = func() bool {
		asked.Add(1)
		return judged.Load()
	}
	c := k.start("m3/c")
	eventually(t, "it has heard the others", func() error {
		for _, node := range []string{"m1/a", "m2/b"} {
			if status, alive, _ := c.store.heard.statusOf(node); !alive || status == nil {
				return errors.New(node + " was not heard")
			}
		}
		return nil
	})
	asked.Store(0)
	eventually(t, "it has compared copies, or has waited with that", func() error {
		if !c.store.heard.caughtUp(c.Alive) && asked.Load() < 20 {
			return errors.New("neither")
		}
		return nil
	})
	<-c.store.disk.Counted()
	if err := c.store.expire(ctx); err != nil {
		t.Error(err)
	}
	if records, _ := c.store.disk.Totals(); records < before {
		t.Errorf("of %d records it has %d", before, records)
	}
	if !c.store.isBehind() {
		t.Error("it says that it lacks nothing")
	}
	judged.Store(true)
	k.settled()
	holds(c, all)
}

// TestContactInTheFuture: what a wrong clock noted hides neither a long absence nor later contact.
func TestContactInTheFuture(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b")
	ctx := t.Context()
	k.settled()
	note := func() time.Duration { // how far it is ahead
		t.Helper()
		b, err := k.store("m2/b").disk.Note(contactNote)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) != 8 {
			return -time.Hour
		}
		return time.Unix(int64(binary.BigEndian.Uint64(b)), 0).Sub(k.now.Now())
	}
	recent := func() error {
		if ahead := note(); ahead.Abs() > 30*time.Second {
			return fmt.Errorf("the note is %v ahead", ahead)
		}
		return nil
	}
	eventually(t, "contact is noted", recent)
	k.now.add(48 * time.Hour)
	eventually(t, "contact is noted by the wrong clock", recent)
	k.now.add(-48 * time.Hour)
	eventually(t, "contact is noted by the corrected clock", recent)

	for _, tt := range []struct {
		ahead time.Duration
		stale bool
	}{{time.Minute, false}, {48 * time.Hour, true}} {
		at := uint64(k.now.Now().Add(tt.ahead).Unix())
		if err := k.store("m2/b").disk.SetNote(ctx, contactNote,
			binary.BigEndian.AppendUint64(nil, at)); err != nil {
			t.Fatal(err)
		}
		k.node("m2/b").kill()
		k.isolate("m2/b", true)
		if s := k.start("m2/b").store; s.stale.Load() != tt.stale {
			t.Errorf("with a note %v ahead: stale is %t", tt.ahead, !tt.stale)
		}
		k.isolate("m2/b", false)
		eventually(t, "it has asked, and notes contact", func() error {
			if k.store("m2/b").stale.Load() {
				return errors.New("it has not asked")
			}
			return recent()
		})
	}
}

// TestComparisonsGoOnAfterACorrection moves the clock back between comparisons.
func TestComparisonsGoOnAfterACorrection(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.opts.RepairEvery = 100 * time.Millisecond
	k.begin("m1/a", "m2/b", "m3/c")
	k.settled()
	k.now.add(-48 * time.Hour)
	key := Key{Space: SpaceMinions, Place: "web1", Name: "grains"}
	s := k.store("m1/a")
	if err := s.give(t.Context(), s.view.Load(), "m1/a", []disk.Change{{Record: Record{Key: key,
		Value: []byte("v"), Version: Version{Clock: s.clock.Next(), Node: s.node},
		Partition: s.partitionOf(key)}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others compare copies", func() error {
		for _, node := range []string{"m2/b", "m3/c"} {
			if !k.node(node).holds(key) {
				return errors.New(node + " lacks the record")
			}
		}
		return nil
	})
}
