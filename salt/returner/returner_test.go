package returner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/store/outbox"
	"clustermaster/value"
)

// table is a returner with its database.
type table struct {
	mu     sync.Mutex
	rows   []string
	calls  []int  // sizes of the successful calls
	down   bool   // the database is down
	hates  string // the tag of an event that it never takes
	only   int    // then it goes down after this many rows; 0: it does not
	closed int
	slow   time.Duration
	each   time.Duration // what one row takes; a call that takes longer than a minute is killed
}

func (d *table) HandOver(ctx context.Context, _ string, items []any, _ time.Duration) (int, string,
	error) {
	began := time.Now()
	select {
	case <-time.After(d.slow):
	case <-ctx.Done():
		return 0, "", ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return 0, "", errors.New("the database is down")
	}
	for i, item := range items {
		tag := item.(value.Map).String("tag")
		if d.hates != "" && strings.HasPrefix(tag, d.hates) {
			return i, "it does not like " + tag, nil
		}
		if time.Sleep(d.each); time.Since(began) > time.Minute {
			return 0, "", errors.New("killed")
		}
		d.rows = append(d.rows, tag)
		if d.only > 0 {
			d.only--
			d.down = d.only == 0
		}
	}
	d.calls = append(d.calls, len(items))
	return len(items), "", nil
}

func (d *table) Stale() bool { return false }
func (d *table) Close()      { d.set(func() { d.closed++ }) }

func (d *table) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *table) has() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.rows, " ")
}

type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// running returns a Returners with a table. It hands over until the test stops it.
func running(t *testing.T, dir string, d *table, o Options) (r *Returners, lines *log,
	stop func()) {
	t.Helper()
	box, err := outbox.Open(dir, outbox.Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines = &log{}
	r = New(Deps{Box: box, Session: func() Session { return d },
		Log: slog.New(slog.NewTextHandler(lines, nil))}, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, lines, func() {
		cancel()
		if err := errors.Join(<-done, box.Close()); err != nil {
			t.Error(err)
		}
	}
}

func fire(r *Returners, tags ...string) {
	for _, tag := range tags {
		if r.Wants(tag) {
			r.Event(tag, value.Raw{0x80})
		}
	}
}

// process is a session that has the returner only if that was there when the session began.
type process struct {
	*table
	missing bool
}

func (p process) HandOver(ctx context.Context, returner string, items []any,
	within time.Duration) (int, string, error) {
	if p.missing {
		return 0, "'db.event_return' is not available.", nil
	}
	return p.table.HandOver(ctx, returner, items, within)
}

// TestCopiedLater: a returner that is copied to the master after items came for it gets them at the
// next try.
func TestCopiedLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	synctest.Test(t, func(t *testing.T) {
		box, err := outbox.Open(dir, outbox.Options{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var copied atomic.Bool
		d := &table{}
		r := New(Deps{Box: box, Session: func() Session { return process{d, !copied.Load()} },
			Log: slog.New(slog.DiscardHandler)}, one)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		fire(r, "a", "b")
		time.Sleep(time.Minute)
		if got := d.has(); got != "" {
			t.Errorf("a missing returner took %s", got)
		}
		copied.Store(true)
		time.Sleep(maxPause + time.Second)
		if got := d.has(); got != "a b" {
			t.Errorf("the returner has %q", got)
		}
		cancel()
		if err := errors.Join(<-done, box.Close()); err != nil {
			t.Error(err)
		}
	})
}

var one = Options{Events: []string{"db"}}

// TestDown: the database is down for an hour. Nothing is lost, the order stays, and the log reports
// it once.
func TestDown(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	synctest.Test(t, func(t *testing.T) {
		d := &table{down: true}
		r, lines, stop := running(t, dir, d, one)
		var want []string
		for n := range 1200 {
			want = append(want, fmt.Sprintf("e%04d", n))
			fire(r, want[n])
			time.Sleep(3 * time.Second)
		}
		d.set(func() { d.down = false })
		time.Sleep(maxPause + time.Second)
		if got := d.has(); got != strings.Join(want, " ") {
			t.Errorf("rows %s", got)
		}
		if n := lines.count("returner takes no items"); n != 1 {
			t.Errorf("the log says %d times that it is down", n)
		}
		if n := lines.count("takes items again"); n != 1 {
			t.Errorf("the log says %d times that it is back", n)
		}
		stop()
	})
}

// TestSlow: a call with as many events as may wait would be killed before it has written all. Each
// is written once.
func TestSlow(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	synctest.Test(t, func(t *testing.T) {
		d := &table{each: 150 * time.Millisecond}
		r, lines, stop := running(t, dir, d, one)
		var want []string
		for n := range 2000 {
			want = append(want, fmt.Sprintf("e%04d", n))
			fire(r, want[n])
		}
		time.Sleep(10 * time.Minute)
		if got := d.has(); got != strings.Join(want, " ") {
			t.Errorf("%d rows for %d events", len(strings.Fields(got)), len(want))
		}
		if n := lines.count("returner takes no items"); n != 0 {
			t.Errorf("%d calls failed", n)
		}
		d.set(func() {
			if n := len(d.calls); n > 70 {
				t.Errorf("%d calls", n)
			}
		})
		stop()
	})
}

// TestRefused: the database never takes some events. They are set aside, and the others are written
// in order.
func TestRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	synctest.Test(t, func(t *testing.T) {
		d := &table{hates: "bad"}
		r, lines, stop := running(t, dir, d, one)
		fire(r, "a", "bad1", "bad2", "bad3", "b", "c", "bad4", "d")
		time.Sleep(time.Minute)
		if got := d.has(); got != "a b c d" {
			t.Errorf("rows %s", got)
		}
		if lines.count("the item is set aside") != 4 || lines.count("it does not like bad2") != 1 ||
			r.d.Box.Len(outbox.Aside("event_return/db")) != 4 {
			t.Errorf("log: %s", lines.text.String())
		}
		stop()
	})
}

// TestRefusedRow: the returner never takes a long run of events. One event after them that it takes
// frees the queue, or two if the run is longer than maxRow.
func TestRefusedRow(t *testing.T) {
	t.Parallel()
	for _, n := range []int{30, maxRow + 30} {
		dir := filepath.Join(t.TempDir(), "box")
		synctest.Test(t, func(t *testing.T) {
			d := &table{hates: "bad"}
			r, lines, stop := running(t, dir, d, one)
			fire(r, "a")
			for range n {
				fire(r, "bad")
			}
			time.Sleep(time.Hour)
			fire(r, "b", "c")
			time.Sleep(10 * time.Minute)
			want := "a b c"
			if got := d.has(); got != want {
				t.Errorf("rows %s", got)
			}
			if set := r.d.Box.Len(outbox.Aside("event_return/db")); set != n ||
				lines.count("the item is set aside") != n {
				t.Errorf("%d of %d are set aside", set, n)
			}
			fire(r, "d", "e")
			time.Sleep(time.Second)
			if got := d.has(); got != want+" d e" {
				t.Errorf("rows afterwards %s", got)
			}
			stop()
		})
	}
}

// TestRefusedThenDown: while the first event is refused, the database is down, comes back for a
// moment and is down again. At most maxRow good events are set aside.
func TestRefusedThenDown(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	synctest.Test(t, func(t *testing.T) {
		d := &table{hates: "bad", down: true}
		r, _, stop := running(t, dir, d, one)
		fire(r, "bad")
		const n = 5 * maxRow
		for i := range n {
			fire(r, fmt.Sprintf("e%04d", i))
		}
		time.Sleep(3 * time.Minute) // more than maxRow of them are tried
		d.set(func() { d.down, d.only = false, 2 })
		time.Sleep(time.Hour)
		d.set(func() { d.down, d.only = false, 0 })
		time.Sleep(10 * time.Minute)
		set := r.d.Box.Len(outbox.Aside("event_return/db"))
		if got := len(strings.Fields(d.has())); set > 1+maxRow || got+set != n+1 {
			t.Errorf("%d of %d rows, %d set aside", got, n, set)
		}
		stop()
	})
}

// TestQueue waits for the number of events, or for the age of the first one.
func TestQueue(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	synctest.Test(t, func(t *testing.T) {
		d := &table{}
		o := one
		o.Queue, o.MaxAge = 3, 10*time.Second
		o.Allow, o.Deny = []string{"e*", "x"}, []string{"*no"}
		r, _, stop := running(t, dir, d, o)
		fire(r, "e1", "other", "e2", "e-no")
		time.Sleep(8 * time.Second)
		if got := d.has(); got != "" {
			t.Errorf("two of three: %s", got)
		}
		fire(r, "x")
		time.Sleep(time.Second)
		if got := d.has(); got != "e1 e2 x" {
			t.Errorf("three: %s", got)
		}
		fire(r, "e4")
		time.Sleep(9 * time.Second)
		if got := d.has(); got != "e1 e2 x" {
			t.Errorf("young: %s", got)
		}
		time.Sleep(4 * time.Second)
		if got := d.has(); got != "e1 e2 x e4" {
			t.Errorf("old: %s", got)
		}
		fire(r, "e5")
		stop()
		// Events left over are written at the next start, whatever their number.
		_, _, stop = running(t, dir, d, o)
		time.Sleep(time.Second)
		if got := d.has(); got != "e1 e2 x e4 e5" {
			t.Errorf("after a start: %s", got)
		}
		time.Sleep(2 * idle)
		d.set(func() {
			if d.closed == 0 {
				t.Error("its process stays without work")
			}
		})
		stop()
	})
}

// TestStop lets a running call end, so that nothing is written twice.
func TestStop(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	synctest.Test(t, func(t *testing.T) {
		d := &table{slow: lastCall / 2}
		r, _, stop := running(t, dir, d, one)
		fire(r, "a")
		synctest.Wait()
		fire(r, "b")
		stop()
		_, _, stop = running(t, dir, d, one)
		time.Sleep(time.Minute)
		if got := d.has(); got != "a b" {
			t.Errorf("rows %s", got)
		}
		stop()
	})
}

// TestTwo: a returner that is down does not delay another one.
func TestTwo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	synctest.Test(t, func(t *testing.T) {
		bad, good := &table{down: true}, &table{}
		box, err := outbox.Open(dir, outbox.Options{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		tables := []*table{bad, good}
		r := New(Deps{Box: box, Session: func() Session { return bad }}, // after a failure
			Options{Events: []string{"bad", "good"}})
		for i, w := range r.workers {
			w.session, w.began = tables[i], time.Now()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		fire(r, "a", "b")
		time.Sleep(time.Second)
		if good.has() != "a b" || bad.has() != "" {
			t.Errorf("rows %s and %s", good.has(), bad.has())
		}
		cancel()
		if err := errors.Join(<-done, box.Close()); err != nil {
			t.Error(err)
		}
	})
}
