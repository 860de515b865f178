package seldom

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Lines[int]{Most: 100, Rest: -1}
		due := func(kind, want int) {
			t.Helper()
			if n := s.Due(kind); n != want {
				t.Errorf("kind %d: %d, want %d", kind, n, want)
			}
		}
		due(0, 1)
		for range 5 {
			due(0, 0)
		}
		due(1, 1)
		time.Sleep(Interval)
		due(0, 6)
		lines := 0
		for kind := range 300 {
			lines += min(s.Due(kind), 1)
		}
		if len(s.seen) > 101 || lines > 101 {
			t.Errorf("%d kinds kept, %d lines", len(s.seen), lines)
		}
		due(-1, 0)
		time.Sleep(Interval)
		due(500, 1) // those before are forgotten
	})
}
