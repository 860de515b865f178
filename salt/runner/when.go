package runner

import (
	"fmt"
	"strings"
	"time"

	"clustermaster/value/dateutil"
)

// zoned are the forms of times that name their zone.
var zoned = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00"}

// parseTime reads a time in UTC, as dateutil does. A time without a date means today. An empty text
// gives the zero time.
func parseTime(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range zoned {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	w, err := dateutil.Parse(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time %w; write it like 2015-03-16 19:00", err)
	}
	return w.On(now.UTC())
}
