package daemon

import (
	"os"
	"strings"
	"sync"
	"time"
)

// ClockEnv names a file with a duration, such as -1h, that is added to this machine's clock. It is
// for tests of wrong clocks, which may step and drift while a master runs.
const ClockEnv = "CLUSTERMASTER_CLOCK"

// Clock returns this machine's clock, or with a file one that is off by the duration in it.
func Clock(file string) func() time.Time {
	if file == "" {
		return time.Now
	}
	var mu sync.Mutex // guards the two below
	var off time.Duration
	var read time.Time
	return func() time.Time {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if now.Sub(read) >= 100*time.Millisecond {
			read = now
			if b, err := os.ReadFile(file); err == nil {
				if d, err := time.ParseDuration(strings.TrimSpace(string(b))); err == nil {
					off = d
				}
			}
		}
		return now.Add(off)
	}
}
