package modules

import (
	"strings"
	"testing"
)

// FuzzWrap: no line is too long, and only spaces are lost.
func FuzzWrap(f *testing.F) {
	f.Add("well-known semi-automatic -- and--so--on ---- a-b-c\tü-ö", 7)
	f.Add(" \v- -", 1)
	f.Fuzz(func(t *testing.T, s string, width int) {
		if width < 1 || width > 100 || len(s) > 1000 {
			return
		}
		lines := wrap(s, width)
		for _, line := range lines {
			if runes(line) > width {
				t.Errorf("%q is longer than %d", line, width)
			}
		}
		letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if got, want := letters(strings.Join(lines,
			"")), letters(string(plainSpaces(s))); got != want {
			t.Errorf("%q became %q", want, got)
		}
	})
}
