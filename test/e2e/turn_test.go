package e2e

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestTurns: on a crowded machine a test waits until fewer than a few have a turn, or until it has
// waited long enough; on another one it begins.
func TestTurns(t *testing.T) {
	t.Parallel()
	var crowded atomic.Bool
	q := &turns{dir: t.TempDir(), always: 2, crowded: crowded.Load,
		settle: 10 * time.Millisecond, patience: time.Hour}
	take := func() (release func()) {
		t.Helper()
		release, err := q.take()
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	crowded.Store(true)
	first, second := take(), take()
	defer second()
	began := make(chan func())
	go func() {
		release, err := q.take()
		if err != nil {
			t.Error(err)
		}
		began <- release
	}()
	select {
	case <-began:
		t.Fatal("a third test began on a crowded machine")
	case <-time.After(700 * time.Millisecond): // it looks every 200 ms
	}
	first()
	third := <-began
	defer third()
	crowded.Store(false)
	defer take()()
	turn, taken, err := q.free()
	if err != nil || taken != 3 {
		t.Fatalf("%d turns are taken, %v; want 3", taken, err)
	}
	turn.Close()
	crowded.Store(true)
	impatient := *q
	impatient.patience = 0
	release, err := impatient.take()
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestTurnOfSubtests: subtests share the turn of their test, and it ends with the test.
func TestTurnOfSubtests(t *testing.T) {
	t.Parallel()
	has := func(name string) bool {
		turnsTaken.Lock()
		defer turnsTaken.Unlock()
		return turnsTaken.tests[name] != nil
	}
	var names []string
	t.Run("one", func(t *testing.T) {
		takeTurn(t)
		takeTurn(t)
		names = append(names, t.Name())
		t.Run("within", func(t *testing.T) {
			takeTurn(t)
			names = append(names, t.Name())
			if has(t.Name()) || !has(names[0]) {
				t.Error("the subtest has a turn of its own, or its test has none")
			}
		})
	})
	for _, name := range names {
		if has(name) {
			t.Errorf("%s has ended and keeps its turn", name)
		}
	}
}

// TestCrowd: the figures are there, and plausible.
func TestCrowd(t *testing.T) {
	t.Parallel()
	if n := slowness(); n < 0.05 || n > 500 {
		t.Errorf("slowness %v", n)
	}
	if c := watchCrowd(); c.slow <= 0 || c.waiting < 0 {
		t.Errorf("crowd %v %v", c.slow, c.waiting)
	}
	if n := readMachine().waiting(); n < 0 || n > 10_000 {
		t.Errorf("%v threads run per processor", n)
	}
	for _, tt := range []struct {
		waiting, busy, slow float64
		want                bool
	}{{0.1, 1, 0.5, false}, {2, 1, 1, false}, {2, 1, 2, true}, {4, 1, 0.5, true},
		{4, 0.8, 1, false}, {0.5, 1, 4, true}} {
		c := crowd{waiting: tt.waiting, busy: tt.busy, slow: tt.slow}
		if got := c.dense(); got != tt.want {
			t.Errorf("%+v", tt)
		}
	}
}
