package ringstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"
)

// dies takes a node down that stays a member of the cluster, as one that nobody removes does.
func (k *kit) dies(name string, rest ...string) {
	k.t.Helper()
	k.node(name).kill()
	k.mu.Lock()
	k.also = append(k.also, name)
	k.mu.Unlock()
	k.setRing(rest...)
}

// Old rings are given up although a dead master was never removed. When it is back it takes over
// the rings of the others before it answers by its own: it misses nothing that was written without
// it.
func TestDeadMasterKeepsNoRing(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b", "c", "d")
	k.settled()
	ctx := t.Context()
	put := func(by string, n int, value string) {
		t.Helper()
		if err := k.store(by).Put(ctx, Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n),
			Name: "n"}, []byte(value),
			time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 60 {
		put("a", n, "old")
	}
	k.settled()
	k.dies("d", "a", "b", "c")
	settles := func(names ...string) {
		t.Helper()
		eventually(t, "old rings are given up", func() error {
			for _, name := range names {
				if v := k.store(name).view.Load(); !v.Settled() || v.Base != v.Latest() ||
					v.Latest().Epoch() != k.epoch {
					return fmt.Errorf("%s has %d rings, base %d of %d", name, len(v.Rings),
						v.Base.Epoch(), v.Latest().Epoch())
				}
			}
			return nil
		})
	}
	settles("a", "b", "c")
	for range 3 { // more changes while it is away
		k.setRing("a", "b", "c")
		settles("a", "b", "c")
	}
	for n := range 60 {
		put("b", n, "new")
	}
	d := k.start("d")
	for n := range 60 {
		got, found, err := d.store.Get(ctx, Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n),
			Name: "n"})
		if err != nil || !found || string(got.Value) != "new" {
			t.Fatalf("p%d by the one that is back: %q, %v, %v", n, got.Value, found, err)
		}
	}
	k.setRing("a", "b", "c", "d")
	k.settled()
	seen := 0
	cover, err := d.store.Scan(ctx, SpaceMinions, "", func(r Record) error {
		if string(r.Value) != "new" {
			return fmt.Errorf("%s is %q", r.Place, r.Value)
		}
		seen++
		return nil
	})
	if err != nil || !cover.Complete() || seen != 60 {
		t.Errorf("scan: %d records, %v, %v", seen, cover, err)
	}
}

// A master that fills a new ring from one that the others have given up is not done with that: what
// was written meanwhile lies with the owners in the ring that it takes over.
func TestFillingByAGivenUpRingDoesNotCount(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c", "m"}
	k := newKit(t, all...)
	k.settled()
	ctx := t.Context()
	k.dies("m", "a", "b", "c")
	know := func(settled bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("the others know ring %d", k.epoch), func() error {
			for _, name := range []string{"a", "b", "c"} {
				if s := k.store(name); s.Info().Epoch != k.epoch || s.Settled() != settled {
					return fmt.Errorf("%s: ring %d, settled %v", name, s.Info().Epoch, s.Settled())
				}
			}
			return nil
		})
	}
	know(true)
	var keys []Key
	for n := range 60 {
		key := Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n), Name: "n"}
		if err := k.store("a").Put(ctx, key, []byte("v"), time.Time{}); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	eventually(t, "a has its copies too", func() error { // a quorum may be the others
		for _, key := range keys {
			if !k.node("a").holds(key) {
				return fmt.Errorf("%v is not on a", key)
			}
		}
		return nil
	})
	k.setMembers(nil, all...)
	know(false)
	m := k.node("m")
	clear(m.conns)                             // closed
	s, err := Open(m.dir, m, k.opts, nil, nil) // its loops don't run
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, c := range m.conns {
			c.Close()
		}
	})
	m.store = s
	s.ringStep(ctx, false, false)
	if v := s.view.Load(); v.Latest().Epoch() != k.epoch || v.Base.Epoch() != k.epoch-1 {
		t.Fatalf("its base is %d of %d", v.Base.Epoch(), v.Latest().Epoch())
	}
	if done := s.syncing.done(); done >= k.epoch {
		t.Errorf("ring %d counts as filled before the base was taken over", done)
	}
	s.ringStep(ctx, false, false)
	if done := s.syncing.done(); done != k.epoch {
		t.Errorf("then ring %d is filled", done)
	}
	for _, key := range keys {
		if k.ring.Owns("m", s.partitionOf(key)) && !m.holds(key) {
			t.Errorf("%s is not there", key.Place)
		}
	}
}

// However many rings a store has seen, it opens.
func TestManyRingsOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir, newAlone(), Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	v := &rings.View{}
	for epoch := range uint64(300) {
		v.Rings = append(v.Rings, hashring.New([]string{"m1/a"}, 256, 3, epoch+1))
	}
	v.Base = v.Rings[0]
	if err := s.setView(ctx, v); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, newAlone(), Options{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.view.Load(); len(got.Rings) != 300 || got.Base.Epoch() != 1 {
		t.Errorf("%d rings, base %d", len(got.Rings), got.Base.Epoch())
	}
	if err := s.Put(ctx, Key{Space: SpaceJobs, Place: "p", Name: "n"}, nil,
		time.Time{}); err != nil {
		t.Errorf("write: %v", err)
	}
}

// A lineage that can't be read is damage: the store begins anew instead of refusing to open.
func TestGarbledLineage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, lineage := range []any{"x", map[string]any{"rings": nil}} {
		s, err := Open(dir, newAlone(), Options{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(lineage)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.disk.SetNote(t.Context(), "lineage", b); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(dir, newAlone(), Options{}, nil, nil); err != nil {
			t.Fatal(err)
		}
		if !s.disk.Refilling() {
			t.Error("it is taken for good")
		}
		s.Close()
	}
}

// A scan whose ring is given up meanwhile does not claim to be complete.
func TestScanTellsOfARingThatIsGivenUp(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b", "c")
	k.settled()
	ctx := t.Context()
	for n := range 100 {
		if err := k.store("a").Put(ctx, Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n),
			Name: "n"}, nil,
			time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	s, changed := k.store("a"), false
	cover, err := s.Scan(ctx, SpaceMinions, "", func(Record) error {
		if changed {
			return nil
		}
		changed = true
		k.setRing("a", "b", "c")
		k.settled()
		return nil
	})
	if err == nil && cover.Complete() {
		t.Error("it claims to be complete")
	}
}

// Whoever reads by a ring that a member has given up is told so, whatever it reads.
func TestReadsByARingThatWasGivenUpAreRefused(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b", "c")
	k.settled()
	old := k.store("a").view.Load()
	k.setRing("a", "b", "c")
	k.settled()
	ctx, s := t.Context(), k.store("a")
	key := Key{Space: SpaceMinions, Place: "p", Name: "n"}
	p := old.Latest().Partition(key.Place)
	for what, read := range map[string]func(v *rings.View) error{
		"fetch": func(v *rings.View) error {
			_,
				err := s.fetchFrom(ctx, v, "b", p, []Key{key})
			return err
		},
		"list": func(v *rings.View) error {
			_,
				err := s.listFrom(ctx, v, "b", key, p, false, placeSum{})
			return err
		},
		"scan": func(v *rings.View) error {
			return s.remote.Scan(ctx, "b", &ringpb.ScanRequest{Epoch: v.Latest().Epoch(),
				Base: v.Base.Epoch(), Space: uint32(key.Space), Partitions: []uint32{uint32(p)}},
				func([]Record) error { return nil })
		},
		"digest": func(v *rings.View) error {
			_, err := s.remote.Digest(ctx, "b", &ringpb.DigestRequest{Space: uint32(key.Space),
				Base: v.Base.Epoch()})
			return err
		},
	} {
		if err := read(old); !rings.IsLeft(err) {
			t.Errorf("%s by the old ring: %v", what, err)
		}
		if err := read(s.view.Load()); err != nil {
			t.Errorf("%s by the new ring: %v", what, err)
		}
	}
}

// A store that is replaced while the ring settles has no view until it adopts one.
func TestReplacedWhileTheRingSettles(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b", "c")
	k.settled()
	s := k.store("a")
	epoch := s.view.Load().Latest().Epoch()
	if err := s.swap(t.Context(), toldDamage, "a test"); err != nil {
		t.Fatal(err)
	}
	s.view.Store(nil) // it may have adopted one
	if err := s.rebase(t.Context(), epoch); err != nil {
		t.Error(err)
	}
	s.view.Store(nil)
	if err := s.leaveOut(t.Context(), epoch, nil); err != nil {
		t.Error(err)
	}
	k.settled()
}

// TestInNoCluster writes and reads on a master that is in no cluster yet. Both fail at once: it is
// unknown when the master will join one.
func TestInNoCluster(t *testing.T) {
	t.Parallel()
	s, err := Open(t.TempDir(), alone{}, Options{ReadyTimeout: time.Hour}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = s.Write(ctx, "job", Put{Space: SpaceJobs, Name: "r/web1"})
	if !errors.Is(err, ErrNotReady) {
		t.Errorf("a write: %v", err)
	}
	_, _, err = s.Get(ctx, Key{Space: SpaceJobs, Place: "job", Name: "r/web1"})
	if !errors.Is(err, ErrNotReady) {
		t.Errorf("a read: %v", err)
	}
}
