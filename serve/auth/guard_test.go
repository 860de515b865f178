package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowly is an attempt that takes so long.
func slowly(took time.Duration, err error) func(context.Context) (Identity, error) {
	return func(ctx context.Context) (Identity, error) {
		select {
		case <-time.After(took):
			return Identity{}, err
		case <-ctx.Done():
			return Identity{}, fmt.Errorf("back end: %w", ctx.Err())
		}
	}
}

// TestHangingUp: who does not wait for the refusals guesses no faster.
func TestHangingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(newMetrics(nil, nil))
		var mu sync.Mutex
		var asked []time.Duration
		began := time.Now()
		var wg sync.WaitGroup
		for range 40 { // at a time, a new one every 50 ms
			wg.Go(func() {
				for time.Since(began) < time.Minute {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					_, _ = g.do(ctx, "10.0.0.1", "file", "carol",
						func(context.Context) (Identity, error) {
							mu.Lock()
							asked = append(asked, time.Since(began))
							mu.Unlock()
							return Identity{}, ErrRefused
						})
					<-ctx.Done()
					cancel()
				}
			})
		}
		wg.Wait()
		for i := range asked {
			if i >= 4 && asked[i]-asked[i-4] < time.Second {
				t.Errorf("five guesses within a second: %v", asked[i-4:i+1])
			}
		}
		if len(asked) < 10 || len(asked) > 20 {
			t.Errorf("%d guesses in a minute: %v", len(asked), asked)
		}
		time.Sleep(longestPause)
		if _, err := g.do(t.Context(), "10.0.0.1", "file", "carol", slowly(0, nil)); err != nil ||
			time.Since(began) > time.Minute+longestPause+time.Second {
			t.Errorf("the right password after that: %v after %v", err, time.Since(began))
		}
	})
}

// TestCrowd: attempts of many sources with a name, of one source with many names, and slow ones,
// keep nobody out who was confirmed before, and nobody with another name from another source.
func TestCrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(newMetrics(nil, nil))
		try := func(source, user string) (time.Duration, error) {
			began := time.Now()
			_, err := g.do(t.Context(), source, "file", user, slowly(50*time.Millisecond, nil))
			return time.Since(began), err
		}
		if _, err := try("10.0.0.1", "carol"); err != nil {
			t.Fatal(err)
		}
		stop, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 600 {
			source, user := fmt.Sprint("10.1.0.", i), "carol"
			switch i % 3 {
			case 1:
				source, user = "10.0.0.1", fmt.Sprint("user", i)
			case 2:
				user = "carol%2"
			}
			wg.Go(func() {
				for stop.Err() == nil {
					_, _ = g.do(stop, source, "file", user,
						slowly(300*time.Millisecond, ErrRefused))
					<-time.After(10 * time.Millisecond)
				}
			})
		}
		for range 20 {
			<-time.After(500 * time.Millisecond)
			if took, err := try("10.0.0.1", "carol"); err != nil || took > 2*time.Second {
				t.Errorf("who was confirmed before: %v after %v", err, took)
			}
		}
		if took, err := try("10.9.9.9", "dave"); err != nil || took > 2*time.Second {
			t.Errorf("another name from another source: %v after %v", err, took)
		}
		cancel()
		wg.Wait()
		<-time.After(longestPause)
		if n := len(g.running); n > 0 || g.n > 0 {
			t.Errorf("%d run, %d wait", n, g.n)
		}
		for _, p := range g.sources {
			if p.n != 0 {
				t.Errorf("a source with %d attempts is left", p.n)
			}
		}
	})
}

// TestFailuresAreBounded: one source with ever new names, and one name from ever new sources, guess
// no more than a bound lets them; who was confirmed before may go on.
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	for name, pairOf := range map[string]func(i int) (source, user string){
		"a source": func(i int) (string, string) { return "10.0.0.1", fmt.Sprint("user", i) },
		"a name":   func(i int) (string, string) { return fmt.Sprint("10.1.0.", i), "carol" },
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(newMetrics(nil, nil))
			if _, err := g.do(t.Context(), "10.0.0.1", "file", "carol", slowly(0, nil)); err != nil {
				t.Fatal(err)
			}
			asked := 0
			const seconds = 60
			for i := range 20 * seconds {
				source, user := pairOf(i)
				if user == "carol" && source == "10.0.0.1" {
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, _ = g.do(ctx, source, "file", user, func(context.Context) (Identity, error) {
					asked++
					return Identity{}, ErrRefused
				})
				<-ctx.Done()
				cancel()
			}
			if most := failuresAtOnce + failuresASecond*seconds + 1; asked > most ||
				asked < most/2 {
				t.Errorf("%s: %d guesses in a minute, at most %d", name, asked, most)
			}
			if _, err := g.do(t.Context(), "10.0.0.1", "file", "carol", slowly(0, nil)); err != nil {
				t.Errorf("%s: who was confirmed before: %v", name, err)
			}
			time.Sleep(longestPause)
		})
	}
}

// TestSlowAnswers: refusals take as long as the slowest lately, for all names alike, and short
// again after some minutes; who is right never waits for that.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(newMetrics(nil, nil))
		n := 0
		try := func(eauth string, took time.Duration, err error) time.Duration {
			n++
			began := time.Now()
			if _, got := g.do(t.Context(), fmt.Sprint("10.0.0.", n), eauth, fmt.Sprint("user", n),
				slowly(took, err)); !errors.Is(got, err) {
				t.Errorf("%v, want %v", got, err)
			}
			return time.Since(began)
		}
		var got []time.Duration
		got = append(got,
			try("file", 0, ErrRefused), try("file", 900*time.Millisecond, ErrRefused),
			try("file", 2500*time.Millisecond, ErrRefused), try("file", 0, ErrRefused),
			try("file", 100*time.Millisecond, nil), try("pam", 0, ErrRefused),
			try("file", 10*time.Second, context.DeadlineExceeded),
		)
		<-time.After(2 * slowWindow)
		got = append(got, try("file", 0, ErrRefused), try("file", time.Hour, ErrRefused),
			try("file", 0, ErrRefused))
		s := time.Second
		if want := []time.Duration{s, s, 3 * s, 3 * s, s / 10, s, 10 * s, s, 15 * s,
			s}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestRoom: what is remembered is bounded, whoever tries.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(newMetrics(nil, nil))
		var wg sync.WaitGroup
		for i := range 3 * maxRemembered {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				var err error
				if i%2 == 0 {
					err = ErrRefused
				}
				_, _ = g.do(ctx, fmt.Sprint("10.0.", i), "file", fmt.Sprint("user", i),
					func(context.Context) (Identity, error) { return Identity{}, err })
			})
			if i%100 == 0 {
				wg.Wait()
			}
		}
		wg.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		for name, n := range map[string]int{"sources": len(g.sources), "names": len(g.names),
			"pairs": len(g.pairs), "confirmed": len(g.confirmed)} {
			if n > maxRemembered {
				t.Errorf("%d %s", n, name)
			}
		}
	})
}
