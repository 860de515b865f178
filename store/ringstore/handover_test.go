package ringstore

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// held is a cluster of four in which m4/d was down while twenty records were written. The others
// hold its copies.
func held(t *testing.T, expires func(k *kit, n int) time.Time) (k *kit, keys []Key) {
	t.Helper()
	k = newKit(t, "m1/a", "m2/b", "m3/c", "m4/d")
	k.settled()
	k.contactNoted()
	k.node("m4/d").kill()
	for n := range 20 {
		key := Key{Space: SpaceMinions, Place: fmt.Sprint("web", n), Name: "grains"}
		if err := k.store("m1/a").Put(t.Context(), key, []byte("x"), expires(k, n)); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	share := 0
	for _, key := range keys {
		if k.ring.Owns("m4/d", k.store("m1/a").partitionOf(key)) {
			share++
		}
	}
	eventually(t, "one master holds each copy for m4/d", func() error {
		if n := k.owed(); n != share {
			return fmt.Errorf("%d of %d", n, share)
		}
		return nil
	})
	return k, keys
}

func never(*kit, int) time.Time { return time.Time{} }

// owed counts the hints on all masters that are up.
func (k *kit) owed() (n int) {
	for _, node := range k.all() {
		if node.up {
			hints, _ := node.store.disk.OwedTotals()
			n += hints
		}
	}
	return n
}

// handOver lets each master that is up hand over once, and strike what has expired.
func (k *kit) handOver(ctx context.Context) {
	k.t.Helper()
	for _, n := range k.all() {
		if !n.up {
			continue
		}
		for _, node := range n.store.disk.OwingNodes() {
			if err := n.store.handOver(ctx, node); err != nil {
				k.t.Fatalf("%s hands over to %s: %v", n.name, node, err)
			}
			if err := n.store.strikeGone(ctx, node); err != nil {
				k.t.Fatalf("%s strikes hints for %s: %v", n.name, node, err)
			}
		}
	}
}

// Copies held for others outlive a rest of all masters, and a cut, however long: the owner may come
// back a moment later than the master that holds them.
func TestHeldCopiesOutliveALongRest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		rest func(k *kit)
	}{
		{"all masters were down", func(k *kit) {
			up := []string{"m1/a", "m2/b", "m3/c"}
			for _, n := range up {
				k.node(n).kill()
			}
			k.now.add(2000 * time.Hour)
			for _, n := range up {
				k.start(n)
			}
		}},
		{"the holder was cut off", func(k *kit) {
			k.isolate("m1/a", true)
			k.now.add(2000 * time.Hour)
		}},
		{"the owner was away", func(k *kit) { k.pass(2000 * time.Hour) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k, keys := held(t, never)
			owed := k.owed()
			tt.rest(k)
			k.handOver(t.Context())
			if now := k.owed(); now != owed {
				t.Fatalf("%d of %d hints are left", now, owed)
			}
			k.isolate("m1/a", false)
			eventually(t, "nobody suspects itself", func() error {
				for _, n := range k.all() {
					if n.up && n.store.stale.Load() {
						return fmt.Errorf("%s does", n.name)
					}
				}
				return nil
			})
			if now := k.owed(); now != owed {
				t.Fatalf("%d of %d hints are left after the rest", now, owed)
			}
			k.start("m4/d")
			k.settled()
			for _, key := range keys {
				if d := k.node("m4/d"); k.ring.Owns("m4/d", d.store.partitionOf(key)) && !d.holds(key) {
					t.Errorf("%s has not come to its owner", key.Place)
				}
			}
		})
	}
}

// When the ring goes on without the absent owner, its copies go to the present owners at once, so
// that the promised number of copies is there, and tombstones can end.
func TestHeldCopiesGoToThePresentOwners(t *testing.T) {
	t.Parallel()
	k, keys := held(t, never)
	k.setMembers([]string{"m4/d"}, "m1/a", "m2/b", "m3/c")
	eventually(t, "nothing is owed", func() error {
		if n := k.owed(); n > 0 {
			return fmt.Errorf("%d copies", n)
		}
		return nil
	})
	for _, n := range []string{"m1/a", "m2/b", "m3/c"} {
		for _, key := range keys {
			if !k.node(n).holds(key) {
				t.Errorf("%s is not on %s", key.Place, n)
			}
		}
	}
}

// A master that was away for too long may hold what has been deleted since: it gives nothing away
// before it has asked.
func TestHeldCopiesWaitUntilTheirHolderHasAsked(t *testing.T) {
	t.Parallel()
	k, _ := held(t, never)
	owed := k.owed()
	k.isolate("m1/a", true)
	k.isolate("m2/b", true)
	k.now.add(80 * time.Hour) // nobody has a majority
	eventually(t, "they suspect themselves", func() error {
		for _, n := range k.all() {
			if n.up && !n.store.stale.Load() {
				return fmt.Errorf("%s does not", n.name)
			}
		}
		return nil
	})
	k.setRing("m1/a", "m2/b", "m3/c")
	k.handOver(t.Context())
	if now := k.owed(); now != owed {
		t.Errorf("%d of %d hints are left", now, owed)
	}
}

// Hints of expired records don't wait for their owner.
func TestHintsOfExpiredRecordsEnd(t *testing.T) {
	t.Parallel()
	k, _ := held(t, func(k *kit, n int) time.Time {
		if n%2 == 0 {
			return time.Time{}
		}
		return inAnHour(k)
	})
	owed := k.owed()
	k.pass(2 * time.Hour)
	k.handOver(t.Context())
	if now := k.owed(); now == 0 || now >= owed {
		t.Errorf("%d of %d hints are left", now, owed)
	}
}
