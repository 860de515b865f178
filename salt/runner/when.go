package runner

import (
	"fmt"
	"strings"
	"time"
)

// timeForms are the formats in which users of list_jobs write a time; its own output's is the
// first.
var timeForms = []string{
	"2006, Jan 2 15:04:05.999999", "2006, Jan 2 15:04", "2006, Jan 2", "2006-01-02 15:04:05.999999",
	"2006-01-02T15:04:05.999999", "2006-01-02 15:04",
	"2006-01-02T15:04", "2006-01-02", "2006/01/02 15:04:05", "2006/01/02 15:04", "2006/01/02",
	"20060102", "20060102150405", "Jan 2 2006 15:04:05",
	"Jan 2 2006 15:04", "Jan 2 2006", "Jan 2, 2006", "2 Jan 2006 15:04", "2 Jan 2006",
	time.RFC3339Nano,
}

// parseTime reads a time in UTC. A time without a date means today. An empty text gives the zero
// time.
func parseTime(text string, now time.Time) (time.Time, error) {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	for _, form := range []string{"15:04:05", "15:04"} {
		if t, err := time.Parse(form, text); err == nil {
			y, m, d := now.UTC().Date()
			return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.UTC), nil
		}
	}
	return time.Time{},
		fmt.Errorf("read time %q: unknown form; write it like 2015-03-16 19:00", text)
}
