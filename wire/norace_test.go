//go:build !race

package wire

import (
	"testing"
	"time"

	"clustermaster/value/valuetest"

	"clustermaster/value"
)

const underRace = false

// What killed masters, in full size. The race detector allocates too.
func TestInspectingIsCheap(t *testing.T) {
	for name, m := range valuetest.Dense(1 << 20) {
		for i, b := range requests(m) {
			const most = 2 * time.Second
			took := 2 * most
			for try := 0; try < 3 && took > most; try++ { // others may have the processors for a time
				start := time.Now()
				valuetest.Within(t, 4*int64(len(b)), func() { _, _ = ParseEnvelope(b) })
				took = time.Since(start)
			}
			if took > most {
				t.Errorf("%s, request %d: %v", name, i, took)
			}
			if t.Failed() {
				t.Fatalf("%s, request %d", name, i)
			}
		}
		if weight, err := value.Weigh(m); err == nil {
			valuetest.Within(t, weight, func() { _, _ = value.Unpack(m) })
			if limit := 80 * int64(len(m)); weight > limit {
				t.Errorf("%s: %d bytes weigh %d", name, len(m), weight)
			}
		} else {
			valuetest.Within(t, 80*int64(len(m)), func() { _, _ = value.Unpack(m) })
		}
	}
}
