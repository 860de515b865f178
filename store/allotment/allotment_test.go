package allotment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// disk is what a count finds.
type disk struct {
	mu     sync.Mutex // guards the rest
	of     map[string]int64
	counts int
	err    error
}

func (d *disk) count(_ context.Context, add func(string, int64)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts++
	for id, n := range d.of {
		add(id, n)
	}
	return d.err
}

func TestTake(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	d := &disk{of: map[string]int64{"a": 900, "": 100}}
	m := New(Limits{One: 1600, All: 3200}, d.count, func() time.Time { return now })
	store := func(id string, n int64) error {
		done, err := m.Take(t.Context(), id, n)
		if err == nil {
			d.of[id] += n
			done(true)
		}
		return err
	}
	for _, step := range []struct {
		id     string
		n      int64
		after  time.Duration
		want   error
		counts int // so far
	}{
		{"a", 50, 0, nil, 1},
		{"a", 50, 0, nil, 1},                // together a sixteenth
		{"a", 50, 0, nil, 2},                // more than that: counted again
		{"a", 551, 0, ErrOne, 2},            // the last count is recent
		{"a", 551, time.Hour, ErrOne, 3},    // the last count is old
		{"b", 1500, 0, nil, 4},              // much at once
		{"c", 700, time.Second, ErrAll, 4},  // more than a sixteenth
		{"", 700, time.Second, ErrAll, 4},   // of no minion
		{"", 100, 10 * time.Second, nil, 5}, // no minion has no limit of its own
	} {
		now = now.Add(step.after)
		if err := store(step.id, step.n); !errors.Is(err, step.want) || d.counts != step.counts {
			t.Errorf("%+v: %v, counted %d times; %v", step, err, d.counts, d.of)
		}
	}
	d.of["a"], d.of["b"] = 0, 0 // deleted through another master
	now = now.Add(time.Minute)
	if err := store("a", 100); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	d.of["a"], now = 0, now.Add(-48*time.Hour) // deleted, and the clock was corrected
	if err := store("a", 1600); err != nil {
		t.Errorf("after a deletion and a correction: %v", err)
	}
	m.Give("a", 1600)
	d.of["a"] = 0
	done, err := m.Take(t.Context(), "a", 1600)
	if err != nil {
		t.Fatalf("given back: %v", err)
	}
	done(false)
	if done, err = m.Take(t.Context(), "a", 1600); err != nil {
		t.Fatalf("not stored: %v", err)
	}
	done(false)
	d.err = errors.New("no quorum")
	now = now.Add(time.Minute)
	if _, err := m.Take(t.Context(), "z", 3000); err == nil || errors.Is(err, ErrSpent) {
		t.Errorf("a count that fails: %v", err)
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	m := New(Limits{}, nil, nil)
	if _, err := m.Take(t.Context(), "a", 1<<60); m != nil || err != nil {
		t.Error(m, err)
	}
	m.Give("a", 1)
	d := &disk{}
	m = New(Limits{All: 10}, d.count, time.Now)
	if _, err := m.Take(t.Context(), "a", 10); err != nil {
		t.Error(err)
	}
	if _, err := m.Take(t.Context(), "a", 1); !errors.Is(err, ErrAll) {
		t.Error(err)
	}
}

// TestMastersOvershootLittle: masters that do not talk to each other exceed a limit by at most a
// sixteenth each.
func TestMastersOvershootLittle(t *testing.T) {
	t.Parallel()
	const masters, limit = 5, 16_000
	var mu sync.Mutex
	now, stored := time.Unix(1e9, 0), map[string]int64{}
	var meters []*Meter
	for range masters {
		meters = append(meters, New(Limits{One: limit},
			func(_ context.Context, add func(string, int64)) error {
				mu.Lock()
				defer mu.Unlock()
				for id, n := range stored {
					add(id, n)
				}
				return nil
			}, func() time.Time { return now }))
	}
	for i := range 10_000 {
		if done, err := meters[i*7%masters].Take(t.Context(), "a", int64(1+i%97)); err == nil {
			stored["a"] += int64(1 + i%97)
			done(true)
		}
	}
	if got := stored["a"]; got < limit-200 || got > limit+masters*limit/16 {
		t.Errorf("stored %d of %d", got, limit)
	}
}

// TestAtOnce is for the race detector: it stores during a count, and nothing is forgotten.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	d := &disk{of: map[string]int64{}}
	var ticks atomic.Int64
	m := New(Limits{One: 1000, All: 100_000}, d.count,
		func() time.Time { return time.Unix(ticks.Add(60), 0) })
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := map[string]int64{}
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				id := fmt.Sprint((i + j) % 4)
				if done, err := m.Take(t.Context(), id, 10); err == nil {
					d.mu.Lock()
					d.of[id] += 10
					d.mu.Unlock()
					mu.Lock()
					taken[id] += 10
					mu.Unlock()
					done(true)
				}
			}
		})
	}
	wg.Wait()
	if len(taken) != 4 {
		t.Errorf("%d of 4 stored something", len(taken))
	}
	for id, n := range taken {
		if n < 900 || n > 1000 {
			t.Errorf("%s has %d of 1000", id, n)
		}
	}
}
