package ringstore

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func TestMetricsAreLintedAndGoWithTheStore(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	dir := t.TempDir()
	for range 2 { // a second store registers the same names once the first is closed
		s, err := Open(dir, newAlone(), Options{}, nil, reg)
		if err != nil {
			t.Fatal(err)
		}
		families, err := reg.Gather()
		if err != nil || len(families) == 0 {
			t.Fatal(len(families), err)
		}
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "clustermaster_ring_") {
				t.Errorf("metric %s without the prefix", f.GetName())
			}
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if families, _ := reg.Gather(); len(families) != 0 {
		t.Errorf("%d metrics are left after Close", len(families))
	}
}
