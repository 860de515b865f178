package ringstore

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/remote"
	"clustermaster/store/ringstore/ringpb"
)

// What was deleted while a master was away for longer than tombstones live does not come back with
// it, and what was not deleted is there, on it too.
func TestDeletedStaysDeletedWhenAMasterComesBackLate(t *testing.T) {
	t.Parallel()
	t.Run("known", func(t *testing.T) { t.Parallel(); comesBackLate(t, true) })
	t.Run("not known as a member yet", func(t *testing.T) { t.Parallel(); comesBackLate(t, false) })
}

func comesBackLate(t *testing.T, known bool) {
	k := newKit(t)
	k.opts.TombstoneFor = 72 * time.Hour
	k.begin("a", "b", "c")
	k.settled()
	ctx := t.Context()
	key := func(n int) Key {
		return Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n),
			Name: "n"}
	}
	for n := range 60 {
		if err := k.store("a").Put(ctx, key(n), []byte("v"), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	k.settled()
	k.contactNoted()
	k.node("c").kill()
	for n := range 30 {
		if err := k.store("a").Delete(ctx, key(n).Space, key(n).Place, key(n).Name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		k.notices(name, "c")
	}
	// as after ring_dead_after: a and b owe c the deletions while it has a share
	k.setMembers([]string{"c"}, "a", "b")
	k.now.add(80 * time.Hour)
	eventually(t, "the tombstones are gone", func() error {
		for _, name := range []string{"a", "b"} {
			if _, found, err := k.store(name).disk.Get(key(7),
				k.store(name).partitionOf(key(7))); err != nil || found {
				return fmt.Errorf("%s: %v, %v", name, found, err)
			}
			if len(k.store(name).lackers()) == 0 {
				return errors.New("nobody is noted")
			}
		}
		return nil
	})
	c := k.start("c")
	if !known {
		k.setMembers(nil, "a", "b")
		eventually(t, "c has asked", func() error {
			if c.store.stale.Load() {
				return errors.New("not yet")
			}
			return nil
		})
	}
	k.setMembers(nil, "a", "b", "c")
	look := func() {
		t.Helper()
		for n := range 60 {
			for _, name := range []string{"a", "b", "c"} {
				if _, found, err := k.store(name).Get(ctx, key(n)); err != nil ||
					found != (n >= 30) {
					t.Fatalf("p%d by %s: %v, %v", n, name, found, err)
				}
			}
		}
	}
	look()
	eventually(t, "it is filled anew", func() error {
		for n := 30; n < 60; n++ {
			if c.store.stale.Load() || c.store.disk.Refilling() || c.store.view.Load() == nil ||
				!c.holds(key(n)) {
				return fmt.Errorf("p%d is not there", n)
			}
		}
		if len(k.store("a").lackers())+len(k.store("b").lackers()) > 0 {
			return errors.New("it is still noted")
		}
		return nil
	})
	k.settled()
	look()
	for n := range 30 {
		if c.holds(key(n)) {
			t.Errorf("p%d is back on its disk", n)
		}
	}
}

// A clock that stood still while the master was away hides that until it is compared. The machine
// may have been off, or a virtual one that was suspended and takes its clock for compared.
func TestDeletedStaysDeletedWhenTheClockStoodStill(t *testing.T) {
	t.Parallel()
	t.Run("off", func(t *testing.T) { t.Parallel(); clockStoodStill(t, false) })
	t.Run("suspended", func(t *testing.T) { t.Parallel(); clockStoodStill(t, true) })
}

func clockStoodStill(t *testing.T, suspended bool) {
	k := newKit(t)
	k.opts.TombstoneFor = 72 * time.Hour
	k.setRing("a", "b", "c")
	k.start("a")
	k.start("b")
	var judged atomic.Bool
	judged.Store(true)
	stood := &shiftClock{}
	k.opts.ClockJudged = func() bool { return suspended || judged.Load() }
	k.opts.Now = func() time.Time {
		if judged.Load() {
			return k.now.Now()
		}
		return stood.Now()
	}
	c := k.start("c")
	k.settled()
	ctx := t.Context()
	const records, deleted = 60, 30
	key := func(n int) Key {
		return Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n), Name: "n"}
	}
	for n := range records {
		if err := k.store("a").Put(ctx, key(n), []byte("v"), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	k.settled()
	k.contactNoted()
	stood.add(2 * contactEvery)
	judged.Store(false)
	if suspended {
		k.isolate("c", true)
	} else {
		c.kill()
	}
	for n := range deleted {
		if err := k.store("a").Delete(ctx, key(n).Space, key(n).Place, key(n).Name); err != nil {
			t.Fatal(err)
		}
	}
	k.notices("a", "c")
	k.notices("b", "c")
	k.setMembers([]string{"c"}, "a", "b") // as after ring_dead_after
	k.now.add(80 * time.Hour)
	eventually(t, "the tombstones are gone", func() error {
		for _, name := range []string{"a", "b"} {
			if s := k.store(name); s.holdsAny(key, deleted) || len(s.lackers()) == 0 {
				return fmt.Errorf("%s has some, or notes nobody", name)
			}
		}
		return nil
	})
	if suspended {
		if err := k.store("a").Put(ctx, key(records), []byte("v"), time.Time{}); err != nil {
			t.Fatal(err) // messages carry the time of the last write
		}
		k.isolate("c", false)
	} else {
		k.start("c")
		if c.store.stale.Load() {
			t.Fatal("c suspects itself by its clock")
		}
	}
	for _, name := range []string{"a", "b"} {
		s := k.store(name)
		err := s.compareWith(ctx, s.view.Load(), "c")
		if status.Code(err) != codes.Unavailable && c.store.holdsAny(key, deleted) {
			t.Errorf("%s compares with it: %v", name, err)
		}
	}
	look := func() {
		t.Helper()
		for n := range records {
			for _, name := range []string{"a", "b", "c"} {
				if _, found, err := k.store(name).Get(ctx, key(n)); err != nil ||
					found != (n >= deleted) {
					t.Fatalf("p%d by %s: %v, %v", n, name, found, err)
				}
			}
		}
	}
	look()
	judged.Store(true)
	look()
	k.setMembers(nil, "a", "b", "c")
	k.settled()
	look()
	for _, name := range []string{"a", "b", "c"} {
		if s := k.store(name); s.holdsAny(key, deleted) {
			t.Errorf("%s has what was deleted", name)
		}
	}
}

// holdsAny reports whether one of the first n keys is on the disk.
func (s *Store) holdsAny(key func(int) Key, n int) bool {
	for i := range n {
		if _, found, err := s.disk.Get(key(i), s.partitionOf(key(i))); err != nil || found {
			return true
		}
	}
	return false
}

// A master that missed a deletion while it was in contact, and is in contact or away for a moment
// when the tombstones end, does not bring the deleted records back.
func TestDeletedStaysDeletedWhereItWasMissed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		down      bool // c is down when the tombstones end
		debtsLost bool // a forgets that it owes c the deletions
	}{
		{name: "in contact"}, {name: "away for a moment", down: true},
		{name: "in contact, debts lost", debtsLost: true},
		{name: "away for a moment, debts lost", down: true, debtsLost: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t)
			k.opts.WriteTimeout = time.Second      // each delete waits for it once c hangs; a and b keep it
			k.opts.RepairEvery = 10000 * time.Hour // only the removal itself may find what c missed
			k.begin("a", "b", "c")
			k.settled()
			ctx := t.Context()
			const records = 20
			key := func(n int) Key {
				return Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n), Name: "n"}
			}
			for n := range records {
				if err := k.store("a").Put(ctx, key(n), []byte("v"), time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
			k.settled()
			k.hang("c", true)
			for n := range records {
				if err := k.store("a").Delete(ctx, key(n).Space, key(n).Place, key(n).Name); err != nil {
					t.Fatal(err)
				}
			}
			if c := k.node("c"); !c.holds(key(3)) {
				t.Fatal("c did not miss the deletion")
			}
			if tt.debtsLost {
				eventually(t, "all debts are forgotten", func() error {
					hints, err := k.store("a").disk.Hints("c", nil, 1<<20)
					if err != nil || len(hints) < records {
						return fmt.Errorf("%d, %v", len(hints), err)
					}
					return k.store("a").disk.Strike(ctx, "c", hints)
				})
			}
			if tt.down {
				k.pass(70 * time.Hour)
				k.node("c").kill()
				k.pass(4 * time.Hour)
			} else {
				k.pass(74 * time.Hour)
			}
			for _, name := range []string{"a", "b"} {
				k.store(name).expire(ctx) // what may be removed; it fails if c is needed and silent
			}
			k.hang("c", false)
			if tt.down {
				k.start("c")
			}
			k.pass(2 * time.Hour)
			eventually(t, "deleted and forgotten", func() error {
				for n := range records {
					for _, name := range []string{"a", "b", "c"} {
						s := k.store(name)
						if _, found, err := s.disk.Get(key(n), s.partitionOf(key(n))); err != nil || found {
							return fmt.Errorf("p%d is on %s: %v, %v", n, name, found, err)
						}
					}
				}
				return nil
			})
		})
	}
}

// A master that is put back to a disk from before deletions that were forgotten since brings
// nothing back, although the others missed it for a moment only. The one that it asks may have
// owned nothing of what was deleted.
func TestDeletedStaysDeletedOnAnOldDisk(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e"}
	k := newKit(t)
	k.opts.TombstoneFor = 72 * time.Hour
	k.begin(names...)
	k.settled()
	ctx := t.Context()
	const records = 60
	key := func(n int) Key {
		return Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n), Name: "n"}
	}
	for n := range records {
		if err := k.store("a").Put(ctx, key(n), []byte("v"), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	k.settled()
	k.contactNoted()
	c, old := k.node("c"), t.TempDir()
	c.kill()
	if err := os.CopyFS(old, os.DirFS(c.dir)); err != nil {
		t.Fatal(err)
	}
	var held []int // by c and not by d
	for n := range records {
		if r := k.ring; r.Owns("c", r.Partition(key(n).Place)) && !r.Owns("d", r.Partition(key(n).Place)) {
			held = append(held, n)
		}
	}
	if len(held) == 0 {
		t.Fatal("the ring gives c no record that d does not have")
	}
	k.start("c")
	k.settled()
	k.now.add(-5 * time.Second) // the clock of who deletes may be behind
	for _, n := range held {
		if err := k.store("a").Delete(ctx, key(n).Space, key(n).Place, key(n).Name); err != nil {
			t.Fatal(err)
		}
	}
	k.pass(80 * time.Hour)
	eventually(t, "the tombstones are gone, and d knows", func() error {
		k.now.add(contactEvery) // what others have forgotten is noted with the contact
		for _, name := range names {
			s := k.store(name)
			if len(s.lackers()) > 0 || s.disk.Forgotten() == 0 {
				return fmt.Errorf("%s: lacking %q, forgotten %d", name, s.lackers(), s.disk.Forgotten())
			}
			for _, n := range held {
				if _, found, err := s.disk.Get(key(n), s.partitionOf(key(n))); err != nil || found {
					return fmt.Errorf("p%d is on %s: %v, %v", n, name, found, err)
				}
			}
		}
		return nil
	})
	c.kill()
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(c.dir, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "e"} {
		k.cutLine("c", name, true)
	}
	k.start("c")
	eventually(t, "c has asked d", func() error {
		if c.store.stale.Load() || !c.store.disk.Refilling() {
			return fmt.Errorf("its contact was at %d, d has forgotten %d", c.store.contact.Load(),
				k.store("d").disk.Forgotten())
		}
		return nil
	})
	k.isolate("c", false)
	k.settled()
	for n := range records {
		for _, name := range names {
			if _, found, err := k.store(name).Get(ctx, key(n)); err != nil ||
				found == slices.Contains(held, n) {
				t.Errorf("p%d by %s: %v, %v", n, name, found, err)
			}
		}
	}
}

// A master that was cut off does not take the others' absence from that time: who came back
// meanwhile would begin anew for nothing.
func TestOwnAbsenceIsNoAbsenceOfOthers(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.opts.TombstoneFor = 72 * time.Hour
	k.begin("a", "b", "c")
	k.settled()
	a, c := k.node("a"), k.node("c")
	c.kill()
	k.notices("a", "c")
	k.pass(40 * time.Hour)
	k.isolate("a", true)
	k.notices("a", "b")
	k.start("c")
	k.now.add(40 * time.Hour)
	away := func() time.Duration {
		a.store.heard.mu.Lock()
		defer a.store.heard.mu.Unlock()
		return k.now.Now().Sub(a.store.heard.peers["c"].lost)
	}
	eventually(t, "a has looked since", func() error {
		if d := away(); d > time.Hour {
			return fmt.Errorf("c counts as away for %v", d)
		}
		return nil
	})
	k.cutLine("a", "b", false)
	eventually(t, "a hears b", func() error {
		a.store.heard.mu.Lock()
		defer a.store.heard.mu.Unlock()
		if p := a.store.heard.peers["b"]; !p.lost.IsZero() || p.back.IsZero() || !p.at.After(p.back) {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	if d := away(); d > time.Hour {
		t.Errorf("c counts as away for %v once a is back", d)
	}
}

// pass lets time go by so slowly that the running masters note that they are in contact.
func (k *kit) pass(d time.Duration) {
	k.t.Helper()
	for step := 24 * time.Hour; d > 0; d -= step {
		k.now.add(min(step, d))
		for _, n := range k.all() {
			eventually(k.t, n.name+" notes contact", func() error {
				k.mu.Lock()
				up := n.up
				k.mu.Unlock()
				if at := time.Unix(n.store.contact.Load(), 0); up && k.now.Now().Sub(at) > contactEvery+2*time.Second {
					return fmt.Errorf("last at %v", at)
				}
				return nil
			})
		}
	}
}

// Masters that were all down for long have nothing to forget: they keep what they have.
func TestAllDownForLongKeepEverything(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	k := newKit(t, names...)
	k.settled()
	ctx := t.Context()
	for n := range 40 {
		if err := k.store("a").Put(ctx, Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n),
			Name: "n"}, []byte("v"),
			time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	k.settled()
	k.contactNoted()
	for _, n := range names {
		k.node(n).kill()
	}
	k.now.add(2000 * time.Hour)
	for _, n := range names {
		if !k.start(n).store.stale.Load() && n == "a" {
			t.Error("a start after so long is taken for an ordinary one")
		}
	}
	eventually(t, "nobody suspects itself", func() error {
		for _, n := range names {
			if k.store(n).stale.Load() || k.store(n).disk.Refilling() {
				return errors.New(n)
			}
		}
		return nil
	})
	for n := range 40 {
		if _, found, err := k.store("c").Get(ctx,
			Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n), Name: "n"}); err != nil ||
			!found {
			t.Fatalf("p%d: %v, %v", n, found, err)
		}
	}
}

// The survivor of two masters goes on, however long: without it the other one forgets nothing. If
// it starts on an older disk, it still has to ask.
func TestTheSurvivorOfTwoGoesOn(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b")
	k.settled()
	ctx := t.Context()
	a, key := k.node("a"), func(name string) Key {
		return Key{Space: SpaceMinions, Place: name, Name: "n"}
	}
	works := func(name string) {
		t.Helper()
		if err := a.store.Put(ctx, key(name), []byte("v"), time.Time{}); err != nil {
			t.Errorf("write %q: %v", name, err)
		}
		if _, found, err := a.store.Get(ctx, key("before")); err != nil || !found {
			t.Errorf("read at %q: %v, %v", name, found, err)
		}
	}
	works("before")
	k.settled()
	k.contactNoted()
	k.node("b").kill()
	k.pass(80 * time.Hour)
	works("later")
	a.kill()
	k.start("a")
	works("after a restart")
	k.start("b")
	k.settled()
	if !k.node("b").holds(key("later")) {
		t.Error("b did not get what was written meanwhile")
	}
	k.node("b").kill()
	a.kill()
	k.now.add(80 * time.Hour)
	old, err := Open(a.dir, a, k.opts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := old.keepContact(ctx, old.others()); err != nil || !errors.Is(old.doubted(), errAway) {
		t.Errorf("a disk of before 80 hours, with nobody to ask: %v, %v", err, old.doubted())
	}
}

// The other one of two masters may have a quorum alone: this one was removed and has missed it, or
// is no voter. Then it forgets deletions without this one, which was away although it kept running.
func TestTheSpareOneOfTwoWasAway(t *testing.T) {
	t.Parallel()
	for _, removed := range []bool{true, false} {
		t.Run(map[bool]string{true: "removed", false: "no voter"}[removed], func(t *testing.T) {
			t.Parallel()
			k := newKit(t, "a", "b")
			k.settled()
			ctx, b := t.Context(), k.node("b")
			const deleted = 20
			key := func(n int) Key {
				return Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n), Name: "n"}
			}
			for n := range deleted {
				if err := k.store("a").Put(ctx, key(n), []byte("v"), time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
			k.settled()
			k.contactNoted()
			k.isolate("b", true)
			k.notices("a", "b")
			k.mu.Lock()
			b.spare, b.ring = true, k.ring
			k.mu.Unlock()
			names := []string{"a", "b"}
			if removed {
				k.setRing("a")
			} else {
				names = append(names, "c")
				k.setMembers([]string{"b"}, "a", "c") // b's share went after ring_dead_after
				k.start("c")
				k.cutLine("b", "c", true)
				k.notices("c", "b")
			}
			eventually(t, "a has settled", func() error {
				if a := k.store("a"); !a.Settled() || a.Info().Epoch != k.epoch {
					return fmt.Errorf("%+v", a.Info())
				}
				return nil
			})
			for n := range deleted {
				if err := k.store("a").Delete(ctx, key(n).Space, key(n).Place, key(n).Name); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				k.now.add(40 * time.Hour)
				for range 2 { // it notes contact, or not, before it looks again
					from := k.now.Now()
					eventually(t, "b has looked", func() error {
						b.store.heard.mu.Lock()
						defer b.store.heard.mu.Unlock()
						if lost := b.store.heard.peers["a"].lost; lost.Before(from) {
							return fmt.Errorf("last at %v", lost)
						}
						return nil
					})
				}
			}
			gone := func() error {
				for _, name := range names {
					if name != "b" && k.store(name).holdsAny(key, deleted) {
						return fmt.Errorf("%s has some", name)
					}
				}
				return nil
			}
			eventually(t, "the tombstones are gone", gone)
			b.kill()
			k.isolate("b", false)
			k.mu.Lock()
			b.spare, b.ring = false, nil
			k.mu.Unlock()
			k.start("b")
			k.setRing(names...)
			k.settled()
			if err := gone(); err != nil || k.store("b").holdsAny(key, deleted) {
				t.Errorf("what was deleted is back: %v", err)
			}
		})
	}
}

// A master that was away for longer than deletions are remembered, and is still cut off, takes
// nothing alone: it may have to begin anew, and what it took would be gone.
func TestAMasterThatWasAwayTakesNothingAlone(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b", "c")
	k.settled()
	ctx := t.Context()
	put := func(place string) error {
		return k.store("c").Put(ctx, Key{Space: SpaceMinions, Place: place, Name: "n"}, []byte("v"),
			time.Time{})
	}
	k.contactNoted()
	k.isolate("c", true)
	if err := put("soon"); err != nil {
		t.Fatalf("cut off for a moment: %v", err)
	}
	k.node("c").kill()
	k.now.add(80 * time.Hour)
	k.start("c")
	if err := put("late"); !errors.Is(err, errAway) {
		t.Errorf("cut off after 80 hours: %v", err)
	}
	k.isolate("c", false)
	eventually(t, "it takes records again", func() error { return put("back") })
}

// What others hand over to such a master would be gone with its store, and they would have
// forgotten it.
func TestAMasterThatWasAwayTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b")
	k.settled()
	k.isolate("b", true) // so that it can't ask
	b := k.store("b")
	b.stale.Store(true)
	_, err := (&server{s: b}).Write(t.Context(), &ringpb.WriteRequest{})
	if status.Code(err) != remote.CodeDoubted {
		t.Errorf("it answers %v", err)
	}
}

// watched is a node that does something when it is asked whether another one is alive.
type watched struct {
	*kitNode
	look func(node string)
}

func (w *watched) Alive(node string) bool {
	w.look(node)
	return w.kitNode.Alive(node)
}

// What makes a master suspect itself while it notes its contact is asked about the next time.
func TestSuspicionWhileContactIsNoted(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b")
	for name, late := range map[string]func(s *Store, own *shiftClock){
		"another clock is late": func(s *Store, _ *shiftClock) {
			s.clock.Hear(disk.NewClock(func() time.Time { return k.now.Now().Add(80 * time.Hour) }).Next())
			s.suspect()
		},
		"the own clock is corrected": func(_ *Store, own *shiftClock) { own.add(80 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			w, own := &watched{kitNode: k.node("a"), look: func(string) {}}, &shiftClock{}
			s, err := Open(t.TempDir(), w, Options{Now: own.Now}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			ctx, others := t.Context(), []string{"b", "c"}
			_, missed := s.heard.look(others, w.Alive, own.Now())
			s.heard.clean("b", missed)
			if err := s.keepContact(ctx, others); err != nil || s.contact.Load() == 0 || s.doubted() != nil {
				t.Fatal(err, s.contact.Load(), s.doubted())
			}
			own.add(2 * contactEvery)
			once := sync.OnceFunc(func() { late(s, own) })
			w.look = func(node string) {
				if node == "c" { // b need not be asked
					once()
				}
			}
			if err := s.keepContact(ctx, others); err != nil {
				t.Fatal(err)
			}
			if s.doubted() == nil {
				t.Error("it suspects nothing, and has asked nobody")
			}
			if err := s.keepContact(ctx, others); err != nil || s.doubted() != nil {
				t.Errorf("asked: %v, %v", err, s.doubted())
			}
			if !s.isBehind() {
				t.Error("it refused writes, and takes itself for complete")
			}
		})
	}
}

// A master that is back, and can't take records before its clock was compared, counts as absent for
// those that write.
func TestWritesGoOnWhileAMasterDoubtsItself(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"a", "b"}, {"a", "b", "c"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			t.Parallel()
			k := newKit(t)
			var judged atomic.Bool
			judged.Store(true)
			k.setRing(names...)
			for _, name := range names {
				if k.opts.ClockJudged = nil; name == "b" {
					k.opts.ClockJudged = judged.Load
				}
				k.start(name)
			}
			k.settled()
			k.contactNoted()
			for _, name := range names[1:] {
				k.node(name).kill()
			}
			judged.Store(false)
			k.opts.ClockJudged = judged.Load
			b, key := k.start("b"), func(n int) Key {
				return Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n), Name: "n"}
			}
			const records = 20
			for n := range records {
				if err := k.store("a").Put(t.Context(), key(n), []byte("v"), time.Time{}); err != nil {
					t.Fatal(err)
				}
				if b.holds(key(n)) {
					t.Fatal("b took it")
				}
			}
			judged.Store(true)
			for n := range records {
				if _, found, err := b.store.Get(t.Context(), key(n)); err != nil || !found {
					t.Errorf("p%d by b: %v, %v", n, found, err)
				}
			}
			eventually(t, "b has its copies", func() error {
				for n := range records {
					if !b.holds(key(n)) {
						return fmt.Errorf("not p%d", n)
					}
				}
				return nil
			})
		})
	}
}

// TestLateTombstones: a tombstone whose time is over deletes what comes back until it is removed,
// but does not go on from owner to owner where it deletes nothing.
func TestLateTombstones(t *testing.T) {
	t.Parallel()
	ctx, now := t.Context(), time.Unix(1_800_000_000, 0)
	var mu sync.Mutex
	opts := Options{TombstoneFor: time.Hour, ExpireEvery: 24 * time.Hour, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}}
	key := Key{Space: SpaceMinions, Place: "web1", Name: "n"}
	begin := func() *Store {
		s, err := Open(t.TempDir(), newAlone(), opts, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	take := func(s *Store, r Record) {
		t.Helper()
		if err := s.disk.Commit(ctx, &disk.Write{Changes: []disk.Change{{Record: r}}}); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := begin(), begin(), begin()
	if err := a.Put(ctx, key, []byte("v"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	partition := a.partitionOf(key)
	here := func(s *Store) (Record, bool) {
		t.Helper()
		r, found, err := s.disk.Get(key, partition)
		if err != nil {
			t.Fatal(err)
		}
		return r, found
	}
	old, found := here(a)
	if !found {
		t.Fatal("not written")
	}
	take(b, old)
	if r, found := here(b); !found || string(r.Value) != "v" {
		t.Fatalf("no copy: %+v", r)
	}
	if err := a.Delete(ctx, key.Space, key.Place, key.Name); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	now = now.Add(2 * time.Hour)
	mu.Unlock()
	tomb, found := here(a)
	if !found || !tomb.Deleted() {
		t.Fatal("the tombstone counts no more, and was not removed")
	}
	take(b, tomb)
	if r, found := here(b); !found || !r.Deleted() {
		t.Errorf("a late tombstone left the record: %+v", r)
	}
	take(c, tomb)
	if r, found := here(c); found {
		t.Errorf("a late tombstone is kept where it deletes nothing: %+v", r)
	}
	for name, s := range map[string]*Store{"a": a, "b": b} {
		if _, err := s.disk.DropTombstones(ctx, func([]Record) error { return nil },
			func() ([]string, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		if r, found := here(s); found {
			t.Errorf("%s: removed, and still here: %+v", name, r)
		}
	}
}
