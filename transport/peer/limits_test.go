package peer

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func from(ip string) source {
	return sourceOf(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 1)))
}

func TestSource(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"10.0.0.1", "::ffff:10.0.0.1", true},
		{"2001:db8::1", "2001:db8::ffff:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
	} {
		if got := from(tc.a) == from(tc.b); got != tc.same {
			t.Errorf("%s and %s: same source %t, want %t", tc.a, tc.b, got, tc.same)
		}
	}
}

func TestTryLimit(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newTryLimit(2, 5, time.Second)
	a, b, c := from("10.0.0.1"), from("10.0.0.2"), from("10.0.0.3")
	take := func(s source, want bool) {
		t.Helper()
		if l.left(s, now) != want {
			t.Errorf("left: %t, want %t", !want, want)
		}
		if got := l.take(s, now); got != want {
			t.Errorf("take: %t, want %t", got, want)
		}
	}
	take(a, true)
	take(a, true)
	take(a, false)
	take(b, true)
	take(b, true)
	take(c, true)
	take(c, false) // the total is used up
	l.giveBack(c)
	take(c, true)
	now = now.Add(time.Second)
	take(a, true)
	take(a, false)
	now = now.Add(-time.Hour) // a clock set back gives nothing
	take(a, false)

	for i := range 3 * maxSources {
		l.take(from(netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8),
			byte(i)}).String()), now)
	}
	if len(l.bySource) > maxSources {
		t.Errorf("%d sources kept", len(l.bySource))
	}
}

func TestWaitingEvictsTheGreediest(t *testing.T) {
	t.Parallel()
	w := newWaiting(4, 3, prometheus.NewGauge(prometheus.GaugeOpts{Name: "waiting"}))
	enter := func(ip string) *entrant {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		e, ok := w.enter(a, from(ip))
		if !ok {
			t.Fatal("refused")
		}
		return e
	}
	greedy := []*entrant{enter("10.0.0.1"), enter("10.0.0.1"), enter("10.0.0.1")}
	modest := enter("10.0.0.2")
	greedy = append(greedy, enter("10.0.0.1")) // its own oldest goes
	newcomer := enter("10.0.0.3")              // the next oldest goes
	for i, want := range []bool{true, true, false, false} {
		if got := w.leave(greedy[i]); got != want {
			t.Errorf("greedy %d evicted: %t, want %t", i, got, want)
		}
	}
	if w.leave(modest) || w.leave(newcomer) {
		t.Error("one of the modest was evicted")
	}
	if w.total != 0 || len(w.bySource) != 0 {
		t.Errorf("%d left, %d sources", w.total, len(w.bySource))
	}
	late := enter("10.0.0.1")
	w.close()
	if _, err := late.conn.Write([]byte("x")); err == nil {
		t.Error("open after close")
	}
	if _, ok := w.enter(late.conn, from("10.0.0.1")); ok {
		t.Error("entered after close")
	}
}

func TestMetricsAreWellNamed(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	m.refused.WithLabelValues("tls")
	m.conns.WithLabelValues("rpc", "dialled")
	m.dropped.WithLabelValues("down")
	m.joins.WithLabelValues("answered")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if _, err := newMetrics(reg); err == nil {
		t.Error("registered twice")
	}
}
