package settings

import (
	"testing"
	"time"

	"clustermaster/config"
)

func TestElectionTimes(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct{ low, high, heartbeat, election time.Duration }{
		{0, 0, 0, 0}, // the defaults of package cluster
		{700 * ms, 1400 * ms, 700 * ms, 700 * ms},
		{5000 * ms, 20000 * ms, 5000 * ms, 10000 * ms},
		{700 * ms, 0, 700 * ms, 0},
		{0, 3000 * ms, 1500 * ms, 1500 * ms},
	} {
		heartbeat, election := electionTimes(&config.Options{ClusterElectionMin: tt.low,
			ClusterElectionMax: tt.high})
		if heartbeat != tt.heartbeat || election != tt.election {
			t.Errorf("%v to %v: %v and %v, want %v and %v", tt.low, tt.high, heartbeat, election,
				tt.heartbeat, tt.election)
		}
	}
}
