package saltpython

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFinder keeps the interpreter it found, and searches again a minute after it found none.
func TestFinder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks, there := 0, ""
		find := finder(func() (string, error) {
			looks++
			if there == "" {
				return "", errors.New("none")
			}
			return there, nil
		})
		check := func(wantPath string, wantLooks int) {
			t.Helper()
			path, err := find()
			if path != wantPath || (err == nil) != (wantPath != "") || looks != wantLooks {
				t.Errorf("got %q, %v after %d looks; want %q after %d", path, err, looks, wantPath,
					wantLooks)
			}
		}
		check("", 1)
		there = "/bin/python3"
		time.Sleep(pause) // of synctest's clock
		check("", 1)
		time.Sleep(time.Nanosecond)
		check("/bin/python3", 2)
		time.Sleep(time.Hour)
		check("/bin/python3", 2)
	})
}
