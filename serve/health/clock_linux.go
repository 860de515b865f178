package health

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is the time on CLOCK_MONOTONIC, by which systemd matches a reload to its end.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
