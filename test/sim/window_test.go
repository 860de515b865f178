package sim

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// connected returns the two ends of a connection of a network without faults.
func connected(t *testing.T) (f *fabric, from, to net.Conn) {
	f = newFabric(1, 10*time.Millisecond)
	a := &host{f: f, ip: netip.MustParseAddr("10.0.0.1"), dead: make(chan struct{})}
	b := &host{f: f, ip: netip.MustParseAddr("10.0.0.2"), dead: make(chan struct{})}
	l, err := b.Listen(t.Context(), "10.0.0.2:4520")
	if err != nil {
		t.Fatal(err)
	}
	if from, err = a.Dial(t.Context(), "10.0.0.2:4520"); err != nil {
		t.Fatal(err)
	}
	if to, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return f, from, to
}

// A write waits while the other end reads nothing, until its deadline at most, and goes on once the
// other end reads.
func TestWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, from, to := connected(t)
		if n, err := from.Write(make([]byte, window)); n != window || err != nil {
			t.Fatalf("the window takes %d, %v", n, err)
		}
		began := time.Now()
		from.SetWriteDeadline(began.Add(time.Second))
		if n, err := from.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("a full window takes %d, %v after %v", n, err, time.Since(began))
		}
		from.SetWriteDeadline(time.Time{})
		go func() {
			time.Sleep(time.Minute)
			io.ReadFull(to, make([]byte, window+1))
		}()
		if n, err := from.Write([]byte("x")); n != 1 || err != nil || time.Since(began) < time.Minute {
			t.Errorf("a window that is read takes %d, %v after %v", n, err, time.Since(began))
		}
		go func() { time.Sleep(time.Second); to.Close() }()
		if _, err := from.Write(make([]byte, 2*window)); err != nil {
			t.Errorf("a write that waits when the other end closes: %v", err)
		}
		from.Close()
	})
}

// A host that lost power answers nothing until it starts again. What was written to it ends a
// connection after 5 s, or with a reset at the start; an idle connection ends after 11 s; a new one
// waits.
func TestDarkHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		writes bool
		dark   time.Duration
		ends   time.Duration
		err    error
	}{
		{true, 20 * time.Second, userTimeout, syscall.ETIMEDOUT},
		{true, 3 * time.Second, 3 * time.Second, syscall.ECONNRESET},
		{false, 20 * time.Second, keepAlive, syscall.ETIMEDOUT},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, from, _ := connected(t)
			a := &host{f: f, ip: netip.MustParseAddr("10.0.0.1"), dead: make(chan struct{})}
			b := &host{f: f, ip: netip.MustParseAddr("10.0.0.2"), dead: make(chan struct{})}
			b.kill(true)
			began := time.Now()
			time.AfterFunc(tt.dark, func() { f.lit("10.0.0.2") })
			if tt.writes {
				if _, err := from.Write([]byte("x")); err != nil {
					t.Errorf("write: %v", err)
				}
			}
			_, err := from.Read(make([]byte, 1))
			if took := time.Since(began).Round(time.Second); !errors.Is(err, tt.err) || took != tt.ends {
				t.Errorf("writes %v, dark for %v: %v after %v", tt.writes, tt.dark, err, took)
			}
			_, err = a.Dial(t.Context(), "10.0.0.2:4520")
			if took := time.Since(began); !errors.Is(err, syscall.ECONNREFUSED) || took < tt.dark {
				t.Errorf("dark for %v: dial: %v after %v", tt.dark, err, took)
			}
			from.Close()
		})
	}
}

// A line parts two hosts while it is cut, held or narrow, or if it is reset while it is slow; no
// slowness does so alone.
func TestParted(t *testing.T) {
	t.Parallel()
	const a, b = "10.0.0.1", "10.0.0.2"
	slow := func(f *fabric) { f.disturb(a, b, 400*time.Millisecond, 0.1) }
	for _, tt := range []struct {
		what       string
		begin, end func(f *fabric)
		want       bool
	}{
		{"cut", func(f *fabric) { f.cut(b, a) }, func(f *fabric) { f.heal(b, a) }, true},
		{"held", func(f *fabric) { f.hold(a, b, true) }, func(f *fabric) { f.hold(a, b, false) }, true},
		{"narrow", func(f *fabric) { f.narrow(a, b) }, func(f *fabric) { f.heal(a, b) }, true},
		{"slow", slow, func(f *fabric) { f.disturb(a, b, 0, 0) }, false},
		{"a slow reader", func(f *fabric) { f.slowReader(a, 20<<10) }, func(f *fabric) { f.slowReader(a, 0) }, false},
		{"reset", func(f *fabric) { f.reset(a, b) }, func(*fabric) {}, false},
		{"slow and reset", slow, func(f *fabric) { f.reset(a, b); f.heal(a, b) }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric(1, 10*time.Millisecond)
			before := time.Now().Add(-time.Second)
			tt.begin(f)
			tt.end(f)
			if f.parted(a, b, before) != tt.want || f.parted(a, b, time.Now()) {
				t.Errorf("%s: parted before %v, now %v", tt.what, !tt.want, f.parted(a, b, time.Now()))
			}
		})
	}
}

// A slow reader gets no more than its rate.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, from, to := connected(t)
		f.slowReader("10.0.0.2", 32<<10)
		began := time.Now()
		go from.Write(make([]byte, 4*window))
		if _, err := io.ReadFull(to, make([]byte, 4*window)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 7*time.Second || took > 9*time.Second {
			t.Errorf("256 KiB at 32 KiB/s took %v", took)
		}
		from.Close()
		to.Close()
	})
}
