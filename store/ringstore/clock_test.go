package ringstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermaster/store/ringstore/disk"
)

// TestWritesFollowThoseOfAFastClock writes records with a clock that is ahead, and then with the
// right one.
func TestWritesFollowThoseOfAFastClock(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := ctxFor(t)
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
	ctx := ctxFor(t)
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
