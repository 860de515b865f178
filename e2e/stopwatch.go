package e2e

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// stopwatch tells how long something took without the time in which work stood in line for a processor: what is demanded of a master
// is demanded of a machine that has time for it. Waiting for anything else (a timer, a peer, a disk) counts in full.
type stopwatch struct {
	start   time.Time
	stalled time.Duration
}

func startWatch() stopwatch { return stopwatch{start: time.Now(), stalled: stalled()} }

// took is at least a quarter of the time that has passed, so that limits end on the busiest machine.
func (w stopwatch) took() time.Duration {
	passed := time.Since(w.start)
	return max(passed-(stalled()-w.stalled), passed/4)
}

// stalled is for how long, since the machine's start, some task waited for a processor (Linux' pressure stall information). Where the
// kernel doesn't tell it is 0, and waiting in line counts.
func stalled() time.Duration {
	b, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	some, _, _ := strings.Cut(string(b), "\n")
	_, total, _ := strings.Cut(some, "total=")
	us, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}
