package master

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gathered reads the series of one metric, by the value of its only label, "" without one.
func gathered(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			if len(m.GetLabel()) > 0 {
				label = m.GetLabel()[0].GetValue()
			}
			out[label] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

func TestStateResults(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	reg := prometheus.NewRegistry()
	k.metrics = newMetrics(reg)
	m := k.accept("m1")
	ret := dict("pkg_|-a_|-a_|-installed", dict("result", false, "changes", dict()),
		"file_|-b_|-b_|-managed", dict("result", true, "changes", dict("diff", "x")),
		"file_|-c_|-c_|-managed", dict("result", true), "file_|-d_|-d_|-managed", "text",
		"file_|-e_|-e_|-managed", dict("result", nil, "changes", dict("diff", "x")),
		"file_|-f_|-f_|-managed", dict("result", "odd"), "odd", dict("result", true))
	load := dict("cmd", "_return", "return", ret, "retcode", int64(2), "jid",
		"20261121093500438490", "fun", "state.apply")
	m.call(load)
	m.call(load) // a repeat counts once
	m.call(load.Set("jid", "20261121093500438491").Set("fun", "test.arg"))
	m.call(load.Set("jid", "20261121093500438492").Set("return", "no states"))
	got := gathered(t, reg, "clustermaster_state_results_total")
	if want := (map[string]float64{"succeeded": 2, "failed": 1, "would_change": 1}); !maps.Equal(got,
		want) {
		t.Errorf("results %v, want %v", got, want)
	}
	if got := gathered(t, reg, "clustermaster_state_changes_total"); got[""] != 2 {
		t.Errorf("changes %v", got)
	}
}

func TestMinionsHeard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := newHeard(func() time.Time { return now })
	reg := prometheus.NewRegistry()
	reg.MustRegister(h)
	check := func(want map[string]float64) {
		t.Helper()
		if got := gathered(t, reg, "clustermaster_minions_heard"); !maps.Equal(got, want) {
			t.Errorf("heard %v, want %v", got, want)
		}
	}
	h.note("m1")
	h.note("m1")
	now = now.Add(5 * time.Minute)
	h.note("m2")
	check(map[string]float64{"1m": 1, "10m": 2, "1h": 2, "1d": 2, "7d": 2})
	now = now.Add(2 * time.Hour)
	check(map[string]float64{"1m": 0, "10m": 0, "1h": 0, "1d": 2, "7d": 2})
	now = now.Add(8 * 24 * time.Hour)
	check(map[string]float64{"1m": 0, "10m": 0, "1h": 0, "1d": 0, "7d": 0})
	if len(h.at) != 0 {
		t.Errorf("%d minions are remembered", len(h.at))
	}
}

// TestRequestsAreHeard: a request of an accepted minion counts, whatever becomes of it, and however
// the clock is set.
func TestRequestsAreHeard(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1").call(dict("cmd", "nonsense"))
	reg := prometheus.NewRegistry()
	reg.MustRegister(k.heard)
	for _, ahead := range []time.Duration{0, 30 * 24 * time.Hour, -time.Hour} {
		k.now = func() time.Time { return time.Now().Add(ahead) }
		if got := gathered(t, reg, "clustermaster_minions_heard"); got["10m"] != 1 {
			t.Errorf("heard %v while the clock is %v ahead", got, ahead)
		}
	}
}
