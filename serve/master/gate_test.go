package master

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestGate: strangers take no more than their share, and minions go before all of them.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4, 0, newMetrics(nil))
		var mu sync.Mutex
		var order []string
		working := map[string]int{}
		var wg sync.WaitGroup
		come := func(n int, who string, work time.Duration) {
			for range n {
				wg.Go(func() {
					_, err := g.do(t.Context(), who == "stranger", func() ([]byte, error) {
						mu.Lock()
						order = append(order, who)
						working[who]++
						if working["stranger"] > 2 || working["stranger"]+working["minion"] > 4 {
							t.Errorf("at work: %v", working)
						}
						mu.Unlock()
						time.Sleep(work)
						mu.Lock()
						working[who]--
						mu.Unlock()
						return nil, nil
					})
					if err != nil {
						t.Errorf("%s: %v", who, err)
					}
				})
			}
			synctest.Wait()
		}
		atWork := func(who string) int {
			mu.Lock()
			defer mu.Unlock()
			return working[who]
		}
		come(20, "stranger", 10*time.Millisecond)
		if n := atWork("stranger"); n != 2 {
			t.Errorf("%d strangers are at work", n)
		}
		come(6, "minion", 50*time.Millisecond)
		if n := atWork("minion"); n != 2 {
			t.Errorf("beside two strangers %d minions are at work", n)
		}
		wg.Wait()
		// The two strangers that were there go first, then all minions, whatever strangers wait.
		if last := slices.Index(slices.Compact(slices.Clone(order)), "minion"); last != 1 ||
			len(slices.Compact(order)) != 3 {
			t.Errorf("order: %v", order)
		}
		if g.free != 4 || g.minions.free != 4 || g.strangers.free != 2 {
			t.Errorf("free after all: %d, %d, %d", g.free, g.minions.free, g.strangers.free)
		}
	})
}

// TestGateGivesUp: who waits too long, whose server ends, or for whom there is no place is sent
// away, and takes nothing.
func TestGateGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 5, newMetrics(nil))
		g.strangers.room = 2
		hold := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = g.do(t.Context(), false, func() ([]byte, error) { <-hold; return nil, nil })
		})
		synctest.Wait()
		results := make(chan error, 2)
		ended, cancel := context.WithCancel(t.Context())
		never := func() ([]byte, error) { t.Error("ran"); return nil, nil }
		for _, ctx := range []context.Context{t.Context(), ended} {
			wg.Go(func() { _, err := g.do(ctx, true, never); results <- err })
		}
		synctest.Wait()
		if _, err := g.do(t.Context(), true, never); !errors.Is(err, errBusy) {
			t.Errorf("a third one: %v", err)
		}
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("ended: %v", err)
		}
		began := time.Now()
		if err := <-results; !errors.Is(err, errBusy) || time.Since(began) != strangerPatience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(hold)
		wg.Wait()
		if g.free != 1 || len(g.strangers.queue) != 0 || len(g.minions.queue) != 0 {
			t.Errorf("after all: %d free, %d and %d wait", g.free, len(g.strangers.queue),
				len(g.minions.queue))
		}
	})
}

func TestSource(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:db8:1:2::9": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64",
	} {
		if got := source(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
}
