package statesync

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a := c.boxes[0]
	reg := prometheus.NewPedanticRegistry()
	b := c.boxes[1]
	b.leave()
	var err error
	if b.Store, err = Open(b.dir, b, b, b.opts, nil, reg); err != nil {
		t.Fatal(err)
	}
	tree{"f": "644 1"}.write(t, a.file)
	a.sync(Request{})
	value := func(name string) float64 {
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, f := range all {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return sum
	}
	if value("clustermaster_statesync_behind") != 1 {
		t.Error("it does not show that it is behind")
	}
	if err := b.advance(t.Context(), b.trees[FileRoots]); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"clustermaster_statesync_behind": 0, "clustermaster_statesync_head": 1,
		"clustermaster_statesync_installs_total": 1, "clustermaster_statesync_items_total": 1,
		"clustermaster_statesync_drift_items": 0, "clustermaster_statesync_sends": 0,
		"clustermaster_statesync_damaged_blobs_total": 0,
	} {
		if got := value(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if value("clustermaster_statesync_fetched_bytes_total") == 0 {
		t.Error("no bytes counted")
	}
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(all).Lint(); err != nil ||
		len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
