package ringstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func jobKey(i int) Key {
	return Key{Space: SpaceJobs, Place: fmt.Sprintf("2026112109%010d", i%7),
		Name: fmt.Sprintf("r/minion%05d", i)}
}

func inAnHour(k *kit) time.Time { return k.now.Now().Add(time.Hour) }

func TestHintsAreHandedOver(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	k.node("m3/c").kill()
	for i := range 200 {
		if _, err := k.store([]string{"m1/a", "m2/b"}[i%2]).PutFirst(ctx, jobKey(i), []byte("x"),
			inAnHour(k)); err != nil {
			t.Fatal(err)
		}
	}
	hints := 0
	for _, n := range []string{"m1/a", "m2/b"} {
		hints += k.store(n).Info().Nodes[2].Owed
		if under := k.store(n).status().Under; under != 0 {
			t.Errorf("%s counts %d copies as under-replicated though two of three were written",
				n, under)
		}
	}
	if hints != 200 {
		t.Errorf("%d hints for the dead master, want 200", hints)
	}
	k.start("m3/c")
	k.settled()
	for i := range 200 {
		if !k.node("m3/c").holds(jobKey(i)) {
			t.Fatalf("record %d was not handed over", i)
		}
	}
}

// A master that was removed, and does not know it yet, acknowledges nothing below the quorum.
func TestDisownedAcknowledgesNothingAlone(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	k.settled()
	disowned := func(is bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.nodes["m1/a"].disowned = is
	}
	put := func() error { return k.store("m1/a").Put(t.Context(), jobKey(1), []byte("x"), inAnHour(k)) }
	disowned(true)
	k.node("m3/c").kill()
	if err := put(); err != nil {
		t.Errorf("with a quorum: %v", err)
	}
	k.node("m2/b").kill()
	if err := put(); !errors.Is(err, errDisowned) {
		t.Errorf("alone: %v", err)
	}
	disowned(false)
	if err := put(); err != nil {
		t.Errorf("alone, and not disowned: %v", err)
	}
}

func TestAloneIsDurableAndCountedUnderReplicated(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	k.node("m2/b").kill()
	k.node("m3/c").kill()
	key := jobKey(1)
	if err := k.store("m1/a").Put(ctx, key, []byte("x"), inAnHour(k)); err != nil {
		t.Fatal(err)
	}
	if under := k.store("m1/a").status().Under; under != 2 {
		t.Errorf("%d copies counted as under-replicated, want 2", under)
	}
	// It survives a restart, and the survivor still answers.
	k.node("m1/a").kill()
	k.start("m1/a")
	if got, found, err := k.store("m1/a").Get(ctx, key); err != nil || !found ||
		string(got.Value) != "x" {
		t.Fatalf("after restart: %q %v %v", got.Value, found, err)
	}
	cover, err := k.store("m1/a").Scan(ctx, SpaceJobs, "", func(Record) error { return nil })
	if err != nil || cover.String() != "incomplete: 64 of 64 partitions" {
		t.Errorf("coverage %q, %v", cover, err)
	}
	k.start("m2/b")
	k.start("m3/c")
	k.settled()
	if !k.node("m2/b").holds(key) || !k.node("m3/c").holds(key) {
		t.Error("the others did not get it")
	}
	if under := k.store("m1/a").status().Under; under != 0 {
		t.Errorf("still %d copies counted as under-replicated", under)
	}
	cover, err = k.store("m2/b").Scan(ctx, SpaceJobs, "", func(Record) error { return nil })
	if err != nil || !cover.Complete() || cover.String() != "" {
		t.Errorf("coverage %q, %v", cover, err)
	}
}

// A master that can reach no owner keeps a copy for each of them, not for one alone: the disk of
// that one may be lost before copies are compared (simulator, seed 6).
func TestAloneOwesAllOwners(t *testing.T) {
	t.Parallel()
	names := []string{"m1/a", "m2/b", "m3/c", "m4/d"}
	k := newKit(t, names...)
	k.settled()
	key := Key{Space: SpaceMinions, Place: "web1", Name: "grains"}
	owners := k.ring.Owners(k.ring.Partition(key.Place))
	alone := ""
	for _, n := range names {
		if slices.Contains(owners, n) {
			k.node(n).kill()
		} else {
			alone = n
		}
	}
	if err := k.store(alone).Put(t.Context(), key, []byte("x"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if s := k.store(alone).status(); s.Owed != 3 || s.Under != 3 {
		t.Errorf("%d copies are owed, %d of them under-replicated; want 3", s.Owed, s.Under)
	}
	for _, n := range owners {
		k.start(n)
	}
	k.settled()
	for _, n := range owners {
		if !k.node(n).holds(key) {
			t.Errorf("%s did not get it", n)
		}
	}
}

func TestStandInsKeepTheQuorum(t *testing.T) {
	t.Parallel()
	names := []string{"m1/a", "m2/b", "m3/c", "m4/d", "m5/e"}
	k := newKit(t, names...)
	ctx := t.Context()
	k.settled()
	key := Key{Space: SpaceMinions, Place: "web1", Name: "grains"}
	owners := k.ring.Owners(k.ring.Partition(key.Place))
	k.node(owners[0]).kill()
	k.node(owners[1]).kill()
	var rest []string
	for _, n := range names {
		if n != owners[0] && n != owners[1] {
			rest = append(rest, n)
		}
	}
	if err := k.store(rest[0]).Put(ctx, key, []byte("x"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range rest {
		got, found, err := k.store(n).Get(ctx, key)
		if err != nil || !found || string(got.Value) != "x" {
			t.Fatalf("read at %s: %q %v %v", n, got.Value, found, err)
		}
		seen := 0
		if _, err := k.store(n).Scan(ctx, SpaceMinions, "",
			func(Record) error { seen++; return nil }); err != nil || seen != 1 {
			t.Fatalf("scan at %s: %d records, %v", n, seen, err)
		}
	}
	// The last owner dies as well; the stand-ins have it.
	eventually(t, "three copies", func() error {
		n := 0
		for _, r := range rest {
			if k.store(r).disk.Holds(k.ring.Partition(key.Place)) || k.node(r).holds(key) {
				n++
			}
		}
		if n != 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	k.node(owners[2]).kill()
	for _, n := range rest {
		if n == owners[2] {
			continue
		}
		if got, found, err := k.store(n).Get(ctx, key); err != nil || !found ||
			string(got.Value) != "x" {
			t.Fatalf("read at %s with all owners dead: %q %v %v", n, got.Value, found, err)
		}
	}
	for _, o := range owners {
		k.start(o)
	}
	k.settled()
	for _, o := range owners {
		eventually(t, "hand-over to "+o, func() error {
			if !k.node(o).holds(key) {
				return errors.New("not there")
			}
			return nil
		})
	}
	for _, n := range names {
		if hints, _ := k.store(n).disk.OwedTotals(); hints != 0 {
			t.Errorf("%s still owes %d", n, hints)
		}
	}
}

func TestReadRepairsACopy(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	key := Key{Space: SpaceMinions, Place: "web1", Name: "grains"}
	if err := k.store("m1/a").Put(ctx, key, []byte("x"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	lost := k.node("m2/b")
	eventually(t, "copy", func() error {
		if !lost.holds(key) {
			return errors.New("not there")
		}
		return nil
	})
	// The copy is lost behind the store's back.
	p := k.ring.Partition(key.Place)
	if err := lost.store.disk.Probe().Lose(key, p); err != nil {
		t.Fatal(err)
	}
	if got, found, err := lost.store.Get(ctx, key); err != nil || !found ||
		string(got.Value) != "x" {
		t.Fatalf("read at the master that lost it: %q %v %v", got.Value, found, err)
	}
	eventually(t, "repair", func() error {
		if !lost.holds(key) {
			return errors.New("not there")
		}
		return nil
	})
}

func TestWritesOfBothSidesOfACutMeet(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b")
	ctx := t.Context()
	k.settled()
	k.isolate("m2/b", true)
	for i := range 40 {
		if _, err := k.store([]string{"m1/a", "m2/b"}[i%2]).PutFirst(ctx, jobKey(i), []byte("x"),
			inAnHour(k)); err != nil {
			t.Fatal(err)
		}
	}
	k.isolate("m2/b", false)
	k.settled()
	for i := range 40 {
		for _, n := range k.all() {
			if !n.holds(jobKey(i)) {
				t.Fatalf("%s lacks record %d", n.name, i)
			}
		}
	}
}

func TestAWriterWithAnOldRingIsRefusedAndComesAgain(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	old := k.ring
	k.mu.Lock()
	k.nodes["m1/a"].ring = old // has not heard of the next ring
	k.mu.Unlock()
	k.setRing("m1/a", "m2/b", "m3/c", "m4/d")
	k.start("m4/d")
	eventually(t, "others know the ring", func() error {
		for _, n := range []string{"m2/b", "m3/c", "m4/d"} {
			if k.store(n).Info().Epoch != 2 {
				return errors.New(n)
			}
		}
		return nil
	})
	done := make(chan error, 1)
	go func() { done <- k.store("m1/a").Put(ctx, jobKey(1), []byte("x"), inAnHour(k)) }()
	select {
	case err := <-done:
		t.Fatalf("a write with the old ring ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if k.store("m2/b").Settled() {
		t.Error("the ring settled without m1")
	}
	k.mu.Lock()
	k.nodes["m1/a"].ring = nil
	k.mu.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	k.settled()
	if got, found, err := k.store("m4/d").Get(ctx, jobKey(1)); err != nil || !found ||
		string(got.Value) != "x" {
		t.Fatalf("%q %v %v", got.Value, found, err)
	}
}

// TestALateRefusalIsOwed: an owner that knows a newer ring refuses a write when the others have
// made its quorum already. The owners of the partition stay the same, so no comparison of the new
// ring would find what is missing there.
func TestALateRefusalIsOwed(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	old, late, key := k.ring, k.node("m3/c"), jobKey(1)
	k.mu.Lock()
	k.nodes["m1/a"].ring, k.nodes["m2/b"].ring = old, old
	k.mu.Unlock()
	k.setRing("m1/a", "m2/b", "m3/c")
	eventually(t, "m3 knows the next ring", func() error {
		if e := late.store.Info().Epoch; e != k.epoch {
			return fmt.Errorf("epoch %d", e)
		}
		return nil
	})
	released := make(chan struct{})
	k.mu.Lock()
	k.slow = map[string]chan struct{}{late.name: released}
	k.mu.Unlock()
	if err := k.store("m1/a").Put(ctx, key, []byte("x"), inAnHour(k)); err != nil {
		t.Fatal(err)
	}
	close(released)
	k.mu.Lock()
	k.nodes["m1/a"].ring, k.nodes["m2/b"].ring = nil, nil
	k.mu.Unlock()
	k.settled()
	eventually(t, "m3 has the record", func() error {
		if !late.holds(key) {
			return errors.New("it lacks it")
		}
		return nil
	})
}

// load writes first-wins records and counters all the time, and checks that no read misses what was
// acknowledged before it began.
type load struct {
	t     *testing.T
	k     *kit
	names func() []string
	acked sync.Map // Key to value
	wrote atomic.Int64
	stop  chan struct{}
	wg    sync.WaitGroup
}

func startLoad(t *testing.T, k *kit, names func() []string) *load {
	l := &load{t: t, k: k, names: names, stop: make(chan struct{})}
	for w := range 4 {
		l.wg.Add(2)
		go l.returns(w)
		go l.counter(w)
	}
	return l
}

func (l *load) pick(r *rand.Rand) *Store {
	names := l.names()
	return l.k.store(names[r.IntN(len(names))])
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return l.t.Failed()
	}
}

func (l *load) returns(w int) {
	defer l.wg.Done()
	r := rand.New(rand.NewPCG(uint64(w), 1))
	for i := w; !l.stopped(); i += 4 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		key, value := jobKey(i), fmt.Sprint("v", i)
		first, err := l.pick(r).PutFirst(ctx, key, []byte(value), inAnHour(l.k))
		if err == nil {
			if first {
				l.acked.Store(key, value)
				l.wrote.Add(1)
			}
			again, err := l.pick(r).PutFirst(ctx, key, []byte("later"), inAnHour(l.k))
			if err == nil && again && first {
				l.t.Errorf("%v: two masters took the first write one after the other", key)
			}
		} else if !quiet(err) {
			l.t.Errorf("write %v: %v", key, err)
		}
		cancel()
	}
}

// quiet errors are those of a master that is being killed under the test.
func quiet(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) ||
		strings.Contains(err.Error(), "closed")
}

func (l *load) counter(w int) {
	defer l.wg.Done()
	r := rand.New(rand.NewPCG(uint64(w), 2))
	key := Key{Space: SpaceMinions, Place: fmt.Sprint("minion", w), Name: "grains"}
	acked := 0
	for i := 1; !l.stopped(); i++ {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := l.pick(r).Put(ctx, key, []byte(fmt.Sprint(i)), time.Time{}); err == nil {
			acked = i
			l.acked.Store(key, fmt.Sprint(i))
		} else if !quiet(err) {
			l.t.Errorf("write %v: %v", key, err)
		} else {
			l.acked.Delete(key)
		}
		got, found, err := l.pick(r).Get(ctx, key)
		if err == nil {
			n := 0
			fmt.Sscan(string(got.Value), &n)
			if acked > 0 && (!found || n < acked) {
				l.t.Errorf("%v: read %q (found %v) after %d was acknowledged", key, got.Value,
					found, acked)
			}
		} else if !quiet(err) {
			l.t.Errorf("read %v: %v", key, err)
		}
		cancel()
	}
}

// end stops the load and checks that every master reads all that was acknowledged.
func (l *load) end() {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	l.k.settled()
	for _, n := range l.names() {
		ctx := l.t.Context()
		missing := 0
		l.acked.Range(func(key, value any) bool {
			got, found, err := l.k.store(n).Get(ctx, key.(Key))
			if err != nil || !found || string(got.Value) != value {
				if missing++; missing < 4 {
					l.t.Errorf("%s: %v is %q (found %v, %v), want %q", n, key, got.Value, found,
						err, value)
				}
			}
			return true
		})
		seen := map[Key]bool{}
		cover, err := l.k.store(n).Scan(ctx, SpaceJobs, "", func(r Record) error {
			if seen[r.Key] {
				l.t.Errorf("scan at %s gives %v twice", n, r.Key)
			}
			seen[r.Key] = true
			return nil
		})
		if err != nil || !cover.Complete() || len(seen) < int(l.wrote.Load()) {
			l.t.Errorf("scan at %s: %d records of %d, %q, %v", n, len(seen), l.wrote.Load(),
				cover, err)
		}
	}
	if l.wrote.Load() == 0 {
		l.t.Error("nothing was written")
	}
	l.t.Logf("%d first writes acknowledged", l.wrote.Load())
}

// waitWrites waits until n more first writes were acknowledged.
func (l *load) waitWrites(n int64) {
	from := l.wrote.Load()
	eventually(l.t, "writes go on", func() error {
		if l.wrote.Load() < from+n {
			return fmt.Errorf("%d of %d", l.wrote.Load()-from, n)
		}
		return nil
	})
}

func TestRingGrowsUnderLoad(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a")
	var mu sync.Mutex
	names := []string{"m1/a"}
	l := startLoad(t, k, func() []string { mu.Lock(); defer mu.Unlock(); return names })
	l.waitWrites(100)
	for _, n := range []string{"m2/b", "m3/c", "m4/d"} {
		mu.Lock()
		next := append(append([]string(nil), names...), n)
		mu.Unlock()
		k.start(n)
		k.setRing(next...)
		mu.Lock()
		names = next
		mu.Unlock()
		l.waitWrites(100)
	}
	k.settled()
	l.waitWrites(100)
	l.end()
	// Copies that others own now are gone from the first disk, and each owner has its own.
	eventually(t, "foreign copies dropped", func() error {
		for _, n := range k.all() {
			if f := foreign(n.store, k.ring); len(f) > 0 {
				return fmt.Errorf("%s has %d cells of others", n.name, len(f))
			}
		}
		return nil
	})
	l.acked.Range(func(key, _ any) bool {
		for _, o := range k.ring.Owners(k.ring.Partition(key.(Key).Place)) {
			if !k.node(o).holds(key.(Key)) {
				t.Errorf("owner %s lacks %v", o, key)
			}
		}
		return true
	})
}

func TestOneMasterDiesAfterTheOther(t *testing.T) {
	t.Parallel()
	all := []string{"m1/a", "m2/b", "m3/c"}
	k := newKit(t, all...)
	k.settled()
	var mu sync.Mutex
	names := all
	l := startLoad(t, k, func() []string { mu.Lock(); defer mu.Unlock(); return names })
	for _, n := range all {
		l.waitWrites(50)
		var rest []string
		for _, m := range all {
			if m != n {
				rest = append(rest, m)
			}
		}
		mu.Lock()
		names = rest
		mu.Unlock()
		k.node(n).kill()
		l.waitWrites(50)
		k.start(n)
		k.settledFor(n)
		mu.Lock()
		names = all
		mu.Unlock()
	}
	l.waitWrites(50)
	l.end()
}

// settledFor waits until a master that came back has compared copies with the others.
func (k *kit) settledFor(name string) {
	k.t.Helper()
	eventually(k.t, name+" catches up", func() error {
		n := k.node(name)
		if !n.store.Settled() || !n.store.heard.caughtUp(n.Alive) {
			return errors.New("not yet")
		}
		return nil
	})
}

// A master whose disk is lost comes back as another node; the ring changes, and it is filled.
func TestALostDiskIsFilledAnew(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	for i := range 300 {
		if _, err := k.store("m1/a").PutFirst(ctx, jobKey(i), []byte("x"),
			inAnHour(k)); err != nil {
			t.Fatal(err)
		}
	}
	k.node("m2/b").kill()
	for i := 300; i < 400; i++ {
		if _, err := k.store("m3/c").PutFirst(ctx, jobKey(i), []byte("x"),
			inAnHour(k)); err != nil {
			t.Fatal(err)
		}
	}
	k.mu.Lock()
	delete(k.nodes, "m2/b")
	k.mu.Unlock()
	k.start("m2/new")
	k.setRing("m1/a", "m2/new", "m3/c")
	k.settled()
	for i := range 400 {
		if !k.node("m2/new").holds(jobKey(i)) {
			t.Fatalf("record %d is not on the new disk", i)
		}
	}
	eventually(t, "debts to the old disk forgotten", func() error {
		for _, n := range k.all() {
			if hints, _ := n.store.disk.OwedTotals(); hints != 0 {
				return fmt.Errorf("%s owes %d", n.name, hints)
			}
		}
		return nil
	})
}

// A read that a read quorum of owners did not answer, though they are alive, fails: what was
// acknowledged is never said not to be there. Owners that are known to be away are done without.
func TestSilentOwnersFailTheRead(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.opts.ReadTimeout = 2 * time.Second // two reads wait for it
	k.begin("m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	k.start("m4/d")
	if _, err := k.store("m1/a").PutFirst(ctx, jobKey(1), []byte("x"), inAnHour(k)); err != nil {
		t.Fatal(err)
	}
	k.hang("m2/b", true)
	k.hang("m3/c", true)
	for _, n := range []string{"m1/a", "m4/d"} { // with a copy, and without
		short, cancel := context.WithTimeout(ctx, k.opts.ReadTimeout/10)
		defer cancel()
		if got, found, err := k.store(n).Get(short, jobKey(1)); err == nil {
			t.Errorf("%s reads %q (found %v) from a minority in too short a time", n,
				got.Value, found)
		}
	}
	if got, found, err := k.store("m4/d").Get(ctx, jobKey(1)); err == nil {
		t.Errorf("reads %q (found %v) from a minority", got.Value, found)
	}
	if list, err := k.store("m1/a").List(ctx, SpaceJobs, jobKey(1).Place, ""); err == nil {
		t.Errorf("lists %d records from a minority", len(list))
	}
	k.hang("m2/b", false)
	for _, n := range []string{"m1/a", "m4/d"} {
		eventually(t, n+" reads from a majority", func() error {
			got, found, err := k.store(n).Get(ctx, jobKey(1))
			if err == nil && (!found || string(got.Value) != "x") {
				t.Fatalf("%s reads %q (found %v)", n, got.Value, found)
			}
			return err
		})
	}
	k.hang("m3/c", false)
	k.node("m2/b").kill()
	k.node("m3/c").kill()
	if got, found, err := k.store("m1/a").Get(ctx, jobKey(1)); err != nil || !found ||
		string(got.Value) != "x" {
		t.Errorf("the last owner reads %q (found %v), %v", got.Value, found, err)
	}
}

// A master that is stopped, and not yet known to be, delays no write that the others can make
// durable; what it missed is owed to it.
func TestAHungMasterDelaysNoWrite(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.opts.WriteTimeout = 2 * time.Second // the debts are noted after it
	k.begin("m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	k.hang("m3/c", true)
	begin := time.Now()
	for i := range 100 {
		if _, err := k.store("m1/a").PutFirst(ctx, jobKey(i), []byte("x"),
			inAnHour(k)); err != nil {
			t.Fatal(err)
		}
	}
	// waiting for it would take 100 times that
	if took := time.Since(begin); took > 20*k.opts.WriteTimeout {
		t.Errorf("100 writes took %v", took)
	}
	eventually(t, "debts noted", func() error {
		if owed := k.store("m1/a").disk.Owed()["m3/c"]; owed != 100 {
			return fmt.Errorf("%d", owed)
		}
		return nil
	})
	k.hang("m3/c", false)
	k.settled()
	for i := range 100 {
		if !k.node("m3/c").holds(jobKey(i)) {
			t.Fatalf("record %d is missing", i)
		}
	}
}

// With two masters a write waits for the other one while it counts as alive, and fails rather than
// being acknowledged on one disk only.
func TestAWriteIsNotAcknowledgedThinWhileTheOwnerIsAlive(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.opts.WriteTimeout = 250 * time.Millisecond // it is waited for twice that time
	k.begin("m1/a", "m2/b")
	k.settled()
	k.hang("m2/b", true)
	short, cancel := context.WithTimeout(t.Context(), k.opts.WriteTimeout/5)
	defer cancel()
	if _, err := k.store("m1/a").PutFirst(short, jobKey(1), []byte("x"), inAnHour(k)); err == nil {
		t.Error("a write that was ended with the other owner hung is acknowledged")
	}
	if _, err := k.store("m1/a").PutFirst(t.Context(), jobKey(2), []byte("x"),
		inAnHour(k)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("write with the other owner hung: %v", err)
	}
	// Once it is known to be away, the one that is left is enough.
	k.isolate("m2/b", true)
	if _, err := k.store("m1/a").PutFirst(t.Context(), jobKey(3), []byte("x"),
		inAnHour(k)); err != nil {
		t.Error(err)
	}
}
