package ringstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// Kinds of keys on disk; see disk/keys.go.
const (
	kindRecord = 'd'
	kindHint   = 'h'
	kindTomb   = 't'
	kindMeta   = 'm'
)

// stored counts the keys of a kind on a disk.
func stored(t *testing.T, s *Store, kind byte) int {
	t.Helper()
	n, err := s.disk.Probe().Count(kind)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Deletions of unknown records, of which anyone can ask for any number, cost no space. While a
// master is away it may have the record, and the deletion stays until it is back.
func TestDeletionOfTheUnknownLeavesNothing(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	k := newKit(t)
	k.opts.Room = func() error {
		if full.Load() {
			return errors.New("the disk is almost full")
		}
		return nil
	}
	k.begin("m1/a", "m2/b", "m3/c")
	k.settled()
	ctx, s := t.Context(), k.store("m1/a")
	key := func(n int) Key {
		return Key{Space: SpaceMinions, Place: "web1", Name: fmt.Sprint("mine/f", n)}
	}
	eventually(t, "all masters are in contact", func() error {
		if _, calm := s.mayForget(); !calm {
			return errors.New("not yet")
		}
		return nil
	})
	for n := range 1000 {
		if err := s.DeleteStored(ctx, key(n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range k.all() {
		if got := stored(t, n.store, kindTomb); got != 0 {
			t.Errorf("%s has %d tombstones", n.name, got)
		}
	}
	if err := s.Put(ctx, key(7), []byte("v"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	k.isolate("m3/c", true)
	for n := range 10 {
		if err := s.DeleteStored(ctx, key(n)); err != nil {
			t.Fatal(err)
		}
	}
	if got := stored(t, s, kindTomb); got != 10 {
		t.Errorf("%d of 10 tombstones while a master is away", got)
	}
	full.Store(true)
	if err := s.DeleteStored(ctx, key(11)); err == nil || stored(t, s, kindTomb) != 10 {
		t.Errorf("then, while the disk is almost full: %d tombstones, %v", stored(t, s, kindTomb), err)
	}
	full.Store(false)
	k.isolate("m3/c", false)
	k.settled()
	for _, n := range k.all() {
		if _, found, err := n.store.Get(ctx, key(7)); err != nil || found {
			t.Errorf("%s finds what was deleted: %v, %v", n.name, found, err)
		}
	}
}

func TestExpiryDropsWholeBuckets(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	s := k.store("m1/a")
	for i := range 90 {
		// 30 each for one, two and three hours.
		_, err := s.Write(ctx, jobKey(i).Place,
			Put{Space: SpaceJobs, Name: jobKey(i).Name, Value: []byte("x"), First: true,
				Expires: k.now.Now().Add(time.Duration(i%3+1) * time.Hour), Exact: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(ctx, Key{Space: SpaceMinions, Place: "web1", Name: "grains"}, []byte("x"),
		time.Time{}); err != nil {
		t.Fatal(err)
	}
	for hour, want := range []int{90, 60, 30, 0} {
		eventually(t, fmt.Sprint("after hours: ", hour), func() error {
			seen := 0
			cover, err := k.store("m2/b").Scan(ctx, SpaceJobs, "",
				func(Record) error { seen++; return nil })
			if err != nil || seen != want || !cover.Complete() {
				return fmt.Errorf("%d records, want %d; %v %v", seen, want, cover, err)
			}
			return nil
		})
		k.now.add(time.Hour + time.Second)
	}
	k.now.add(2 * time.Hour)
	for _, n := range k.all() {
		eventually(t, "disk of "+n.name, func() error {
			if got := stored(t, n.store, kindRecord); got != 1 {
				return fmt.Errorf("%d records on disk, want the one that never expires", got)
			}
			if records, _ := n.store.disk.Totals(); records != 1 ||
				n.store.disk.Probe().Buckets() != 1 {
				return fmt.Errorf("%d records counted, %d buckets", records,
					n.store.disk.Probe().Buckets())
			}
			return nil
		})
	}
	if _, found, err := s.Get(ctx, Key{Space: SpaceMinions, Place: "web1",
		Name: "grains"}); err != nil || !found {
		t.Errorf("the record without expiry: %v %v", found, err)
	}
}

func TestTombstonesGoAndNothingComesBack(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	key := Key{Space: SpaceMinions, Place: "web1", Name: "mine/f"}
	if err := k.store("m1/a").Put(ctx, key, []byte("x"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	k.node("m3/c").kill()
	if err := k.store("m2/b").Delete(ctx, SpaceMinions, "web1", "mine/f"); err != nil {
		t.Fatal(err)
	}
	// The dead master still has the record; what it hears when it is back must win.
	k.start("m3/c")
	k.settled()
	for _, n := range k.all() {
		if _, found, err := n.store.Get(ctx, key); err != nil || found {
			t.Errorf("%s: found %v, %v", n.name, found, err)
		}
	}
	k.now.add(73*time.Hour + time.Hour)
	for _, n := range k.all() {
		eventually(t, "disk of "+n.name, func() error {
			if r, m := stored(t, n.store, kindRecord), stored(t, n.store, kindTomb); r+m != 0 {
				return fmt.Errorf("%d records, %d tombstone notes", r, m)
			}
			if records, bytes := n.store.disk.Totals(); records != 0 || bytes != 0 {
				return fmt.Errorf("%d records of %d bytes counted", records, bytes)
			}
			return nil
		})
	}
}

// The first writer's expiry stands; a repeated first write in another bucket is no second record.
func TestFirstWinsAcrossBuckets(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a")
	ctx := t.Context()
	s := k.store("m1/a")
	key := Key{Space: SpaceJobs, Place: "myjob", Name: "r/web1"}
	if first, err := s.PutFirst(ctx, key, []byte("a"), k.now.Now().Add(time.Hour)); err != nil ||
		!first {
		t.Fatal(first, err)
	}
	if first, err := s.PutFirst(ctx, key, []byte("b"), k.now.Now().Add(9*time.Hour)); err != nil ||
		first {
		t.Fatal(first, err)
	}
	if got := stored(t, s, kindRecord); got != 1 {
		t.Errorf("%d records on disk, want 1", got)
	}
	k.now.add(3 * time.Hour)
	if _, found, _ := s.Get(ctx, key); found {
		t.Error("found after its expiry")
	}
	if first, err := s.PutFirst(ctx, key, []byte("c"), k.now.Now().Add(time.Hour)); err != nil ||
		!first {
		t.Error("an expired record still wins:", first, err)
	}
	// An ordinary record whose expiry changes moves between buckets and leaves nothing behind.
	k2 := Key{Space: SpaceJobs, Place: "myjob", Name: "end"}
	for _, h := range []int{1, 5, 2, 0} {
		var at time.Time
		if h > 0 {
			at = k.now.Now().Add(time.Duration(h) * time.Hour)
		}
		if err := s.Put(ctx, k2, []byte(fmt.Sprint(h)), at); err != nil {
			t.Fatal(err)
		}
	}
	if got, found, err := s.Get(ctx, k2); err != nil || !found || string(got.Value) != "0" ||
		!got.Expires.IsZero() {
		t.Errorf("%+v %v %v", got, found, err)
	}
	if records, _ := s.disk.Totals(); int(records) != stored(t, s, kindRecord) {
		t.Errorf("%d records counted, %d on disk", records, stored(t, s, kindRecord))
	}
}
