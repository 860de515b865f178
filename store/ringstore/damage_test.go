package ringstore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is a log that can be read.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// damage changes a bit in the middle, and one at the start, of every file of dir whose name
// matches, or takes it away.
func damage(t *testing.T, dir, pattern string, gone bool) (names []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if gone {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
			continue
		}
		b[0] ^= 1
		b[len(b)/2] ^= 1
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// A store whose files are damaged is moved aside and filled from the others, at the start or while
// it runs. Reads and writes go on by every member, and the log names the file.
func TestDamagedStoreIsFilledAnew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pattern string
		gone          bool
		running       bool // found while it runs, by reading all records
	}{
		{"flipped bit in a table", "*.sst", false, false}, {"missing table", "*.sst", true, false},
		{"garbage for a manifest", "MANIFEST-*", false, false},
		{"flipped bit while it runs", "*.sst", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, "a", "b", "c")
			k.settled()
			ctx := t.Context()
			var keys []Key
			for n := range 300 {
				key := Key{Space: SpaceJobs, Place: fmt.Sprintf("p%d", n), Name: "n"}
				keys = append(keys, key)
				if err := k.store("a").Put(ctx, key, []byte(strings.Repeat(key.Place, 1000)),
					time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
			k.settled()
			n := k.node("c")
			if err := n.store.disk.Probe().Flush(); err != nil {
				t.Fatal(err)
			}
			n.kill()
			log := &lines{}
			n.log = slog.New(slog.NewTextHandler(log, nil))
			k.opts.CacheBytes = 1 // what is read comes from the files
			var files []string
			if c.running {
				k.start("c")
				k.settled()
				// A compaction that had read a table before may put a sound one in its place, or
				// find the damage itself.
				err, aside := error(nil), []string(nil)
				for try := 0; try < 20 && err == nil && len(aside) == 0; try++ {
					eventually(t, "compactions end", n.store.disk.Probe().Compacting)
					files = append(files, damage(t, n.dir, c.pattern, c.gone)...)
					err = n.store.scrub(ctx)
					aside, _ = filepath.Glob(n.dir + ".damaged-*")
				}
				if err == nil && len(aside) == 0 {
					t.Error("reading all records found nothing")
				}
			} else {
				files = damage(t, n.dir, c.pattern, c.gone)
				k.start("c")
			}
			for _, key := range keys {
				for _, name := range []string{"a", "c"} {
					if got, found, err := k.store(name).Get(ctx, key); err != nil || !found ||
						string(got.Value) != strings.Repeat(key.Place, 1000) {
						t.Fatalf("%v by %s: %v, %v", key, name, found, err)
					}
				}
			}
			eventually(t, "the damaged store is filled anew", func() error {
				if n.store.disk.Refilling() {
					return errors.New("it is being filled")
				}
				for _, key := range keys {
					if _, ok, err := n.store.disk.Get(key,
						n.store.partitionOf(key)); err != nil || !ok {
						return fmt.Errorf("%v is there %v, %v", key, ok, err)
					}
				}
				return nil
			})
			k.settled()
			if got := log.String(); !strings.Contains(got, "damaged") || !containsOne(got, files) {
				t.Errorf("the log names none of %v:\n%s", files, got)
			}
			if aside, _ := filepath.Glob(n.dir + ".damaged-*"); len(aside) != 1 {
				t.Errorf("moved aside: %v", aside)
			}
			seen := 0
			cover, err := n.store.Scan(ctx, SpaceJobs, "",
				func(Record) error { seen++; return nil })
			if err != nil || !cover.Complete() || seen != len(keys) {
				t.Errorf("scan: %d of %d, %v, %v", seen, len(keys), cover, err)
			}
			n.kill()
			k.start("c")
			if n.store.disk.Refilling() || !n.holds(keys[7]) {
				t.Error("after another start it is filled again, or lacks records")
			}
		})
	}
}

func containsOne(text string, names []string) bool {
	for _, n := range names {
		if strings.Contains(text, strings.TrimSuffix(filepath.Base(n), ".sst")) {
			return true
		}
	}
	return false
}

func (s *Store) partitionOf(k Key) int {
	if v := s.view.Load(); v != nil {
		return v.Latest().Partition(k.Place)
	}
	return 0
}

// While a store is filled anew it does not count as an owner: what it had lost is not taken for
// missing. Each record is acknowledged by a and b, never got to c, and is lost on b, which does not
// reach a and so can't end its filling.
func TestRefillingStoreIsNoWitness(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	// nobody is silent here, but a machine may be busy
	k.opts.WriteTimeout, k.opts.ReadTimeout = 20*time.Second, 20*time.Second
	k.begin("a", "b", "c")
	k.settled()
	ctx := t.Context()
	key := func(n int) Key {
		return Key{Space: SpaceMinions, Place: fmt.Sprintf("p%d", n),
			Name: "n"}
	}
	const records = 50
	for n := range records {
		if err := k.store("a").Put(ctx, key(n), []byte("v"), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	k.settled()
	a, b, c := k.node("a"), k.node("b"), k.node("c")
	for n := range records {
		if err := c.store.disk.Probe().Lose(key(n), c.store.partitionOf(key(n))); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(is bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.cut[[2]string{"b", "a"}] = is
	}
	cut(true)
	if err := b.store.swap(ctx, toldDamage, "a test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b has compared with c", func() error {
		if b.store.view.Load() == nil || b.store.heard.isDirty("c") {
			return errors.New("it has not")
		}
		return nil
	})
	if got, cover, err := asks(ctx, b.store, "n ~v"); err != nil || cover.Incomplete != cover.Partitions {
		t.Errorf("a question by b while it is filled: %d answers, %v, %v", len(got), cover, err)
	}
	lost := 0
	for n := range records {
		if !b.holds(key(n)) && !c.holds(key(n)) && a.holds(key(n)) {
			lost++
		}
		// on a busy machine a may take too long to answer
		eventually(t, "read while b is filled", func() error {
			_, found, err := c.store.Get(ctx, key(n))
			if err == nil && !found {
				t.Fatalf("p%d is said not to be there", n)
			}
			return err
		})
	}
	if lost < records/10 { // on a busy machine comparing with a mends c before it reads
		t.Errorf("%d of %d records were on a only when they were read", lost, records)
	}
	if !b.store.disk.Refilling() {
		t.Error("b ended its filling without what a has")
	}
	cut(false)
	eventually(t, "b is filled", func() error {
		for n := range records {
			if b.store.disk.Refilling() || !b.holds(key(n)) {
				return fmt.Errorf("p%d", n)
			}
		}
		return nil
	})
}

// A comparison that was under way when a store was replaced says nothing of the new one: the
// filling does not end by it.
func TestComparisonOfAReplacedStoreDoesNotCount(t *testing.T) {
	t.Parallel()
	h := &heard{}
	h.start([]string{"a", "b", "c"}, "b")
	up := func(string) bool { return true }
	_, missed := h.look([]string{"a", "c"}, up, time.Now())
	h.miss() // the store is replaced
	h.clean("a", missed)
	if !h.isDirty("a") || h.missedNothingSince(missed) {
		t.Error("the old comparison counts")
	}
	_, missed = h.look([]string{"a", "c"}, up, time.Now())
	h.clean("a", missed)
	if h.isDirty("a") || !h.missedNothingSince(missed) {
		t.Error("the new comparison does not count")
	}
}

// The last record of the log may be cut off at any byte: what came before it is there, and the
// store opens.
func TestTornLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir, newAlone(), Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	put := func(n int) {
		if err := s.Put(ctx, Key{Space: SpaceJobs, Place: fmt.Sprintf("p%d", n), Name: "n"},
			[]byte("value"),
			time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 5 {
		put(n)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs: %v, %v", logs, err)
	}
	log := logs[len(logs)-1]
	before, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	put(5)
	kept := t.TempDir()
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(kept, filepath.Base(log)))
	if err != nil {
		t.Fatal(err)
	}
	for cut := int(before.Size()); cut <= len(whole); cut++ {
		at := filepath.Join(t.TempDir(), "ring")
		if err := os.CopyFS(at, os.DirFS(kept)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, filepath.Base(log)), whole[:cut],
			0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(at, newAlone(), Options{}, nil, nil)
		if err != nil {
			t.Fatalf("cut at byte %d of %d: %v", cut, len(whole), err)
		}
		if s.disk.Refilling() {
			t.Errorf("cut at byte %d of %d: it is taken for damage", cut, len(whole))
		}
		for n := range 5 {
			if _, found, err := s.Get(ctx,
				Key{Space: SpaceJobs, Place: fmt.Sprintf("p%d", n), Name: "n"}); err != nil ||
				!found {
				t.Errorf("cut at byte %d of %d: p%d is found %v, %v", cut, len(whole), n,
					found, err)
			}
		}
		<-s.disk.Counted()
		sameDigests(t, fmt.Sprintf("cut at byte %d", cut), s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Reading all records finds those that are gone without a trace, and comparing brings them back.
func TestScrubFindsWhatIsGone(t *testing.T) {
	t.Parallel()
	k := newKit(t, "a", "b", "c")
	k.settled()
	ctx := t.Context()
	key := Key{Space: SpaceMinions, Place: "p", Name: "n"}
	if err := k.store("a").Put(ctx, key, []byte("v"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	k.settled()
	s := k.store("b")
	if err := s.disk.Probe().Lose(key, s.partitionOf(key)); err != nil {
		t.Fatal(err)
	}
	if err := s.scrub(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the record is back", func() error {
		if !k.node("b").holds(key) {
			return errors.New("it is not there")
		}
		return nil
	})
	sameDigests(t, "after that", s)
}
