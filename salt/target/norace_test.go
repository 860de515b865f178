//go:build !race

package target

import (
	"strings"
	"testing"
)

// TestNotCostly: what sites do is no matter of limits. Nothing runs beside it, because a limit is
// of the process's processor time.
func TestNotCostly(t *testing.T) {
	l := newLarge(20_000)
	some := make([]any, 4000)
	for i := range some {
		some[i] = l.ids[i]
	}
	for name, c := range map[string]struct {
		tgtType string
		tgt     any
		want    int
	}{
		"all": {"glob", "*", 20_000}, "a list": {"list", some, 4000},
		"an expression": {"pcre", "a+-0000[0-4].*", 50},
		"looking ahead": {"pcre", "(?=a)a+-000001", 1}, "a grain": {"grain", "id:*-000001", 1},
		"300 terms": {"compound", strings.Repeat("nosuch* or ", 300) + "G@id:*-000001", 1},
		"inside":    {"grain", "top:k1:k39:a*", 20_000}, "not": {"compound", "not E@a+-0.*", 0},
	} {
		found, err := MatchMinions(t.Context(), c.tgtType, c.tgt, l, true)
		if err != nil || len(found.Minions) != c.want {
			t.Errorf("%s: %d minions, want %d, %v", name, len(found.Minions), c.want, err)
		}
	}
}
