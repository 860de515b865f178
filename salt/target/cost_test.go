//go:build !race

package target

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
	"clustermaster/value/pyregex"
)

// large is a world of many minions, one of them with grains that are made to be searched for long.
type large struct {
	ids  []string
	deep value.Map
	more value.Map // further grains
}

func newLarge(n int) large {
	l := large{ids: make([]string, n), deep: value.Map{}}
	for i := range l.ids {
		l.ids[i] = fmt.Sprintf("%s-%06d", strings.Repeat("a", 200), i)
	}
	for i := range 40 {
		inner := value.Map{}
		for j := range 40 {
			inner = append(inner, value.Pair{Key: fmt.Sprintf("k%d", j),
				Value: strings.Repeat("a", 100)})
		}
		l.deep = append(l.deep, value.Pair{Key: fmt.Sprintf("k%d", i), Value: inner})
	}
	return l
}

func (l large) AcceptedIDs() []string        { return l.ids }
func (l large) DataCache() bool              { return true }
func (l large) Nodegroup(string) (any, bool) { return nil, false }
func (l large) Ask(ctx context.Context, q Question, fn func(string, Hits)) (string, error) {
	j := q.Judge()
	for _, id := range l.ids {
		if j.Err() != nil || ctx.Err() != nil { // as the ring store does
			break
		}
		fn(id, j.Minion(false, append(value.Map{{Key: "top", Value: l.deep}, {Key: "id", Value: id}},
			l.more...)))
	}
	return "", errors.Join(j.Err(), ctx.Err())
}

// threadTime is the processor time that f takes.
func threadTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := pyregex.ThreadTime()
	f()
	return pyregex.ThreadTime() - before
}

// TestCostly: what a minion gives as a target fails within two seconds of processor time, or of
// fifteen walks that take all steps of one walk on a slow machine, and matches nobody, also behind
// "not".
func TestCostly(t *testing.T) {
	l := newLarge(20_000)
	keys := make(value.Map, 1_000_000)
	for i := range keys {
		keys[i] = value.Pair{Key: int64(i + 2), Value: ""}
	}
	l.more = value.Map{{Key: "text", Value: strings.Repeat("a", 500_000)},
		{Key: "brackets", Value: strings.Repeat("[", 7000)},
		{Key: "keys", Value: append(keys, value.Pair{Key: int64(1), Value: keys})}}
	const endless = "(?=a)(a+)+$"
	many := func(n int, word string) string {
		return strings.TrimSuffix(strings.Repeat(word+" or ",
			n), " or ")
	}
	numbered := func(n int, word string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%s or ", fmt.Sprintf(word, i))
		}
		return b.String() + "x"
	}
	limit := max(2*time.Second, 15*threadTime(func() {
		glob("*" + strings.Repeat("a", 90) + "b")(strings.Repeat("a", 500_000))
	}))
	for name, c := range map[string]struct {
		tgtType string
		tgt     any
	}{
		"20,000 globs":           {"compound", many(20_000, "web*")},
		"20,000 expressions":     {"compound", numbered(20_000, "E@"+endless+"%d")},
		"20,000 grains":          {"compound", numbered(20_000, "G@a:%d")},
		"a list of 20,000 words": {"compound", make([]any, 20_000)},
		"one expression":         {"pcre", endless}, "not one": {"compound", "not E@" + endless},
		"400 expressions": {"compound", numbered(400, "E@"+endless+"%d")},
		"450 slow globs": {"compound",
			numbered(450, "*a*a*a*a*a*a*a*a*a*a*a*a*a*b%d")},
		"400 repeats":                  {"compound", numbered(400, "E@((a{30}){30}){30}%d")},
		"an expression on grains":      {"grain_pcre", "id:" + endless},
		"not on grains":                {"compound", "not P@id:" + endless},
		"400 on grains":                {"compound", numbered(400, "P@id:"+endless+"%d")},
		"all that is inside":           {"grain", "*:*:*:*:*:*x"},
		"not all that is inside":       {"compound", "not G@*:*:*:*:*x"},
		"400 times all that is inside": {"compound", numbered(400, "G@*:*:*:*a*b%d")},
		"a long glob":                  {"grain", "text:*" + strings.Repeat("a", 5_000) + "b"},
		"a shorter glob":               {"grain", "text:*" + strings.Repeat("a", 90) + "b"},
		"a glob of brackets":           {"grain", "brackets:*" + strings.Repeat("[", 3500) + "b"},
		"a long expression":            {"grain_pcre", "text:(.*a?){9}" + strings.Repeat("a?", 40) + "b"},
		"a large expression":           {"grain_pcre", "text:((a?){90}){90}b"},
		"a long path":                  {"grain", "keys" + strings.Repeat(":1", 60)},
		"a path without an end":        {"grain", "keys" + strings.Repeat(":0", 60)},
	} {
		t.Run(name, func(t *testing.T) {
			var found Result
			var err error
			if took := threadTime(func() {
				found, err = MatchMinions(t.Context(), c.tgtType, c.tgt, l, false)
			}); took > limit {
				t.Errorf("took %v, want at most %v", took, limit)
			}
			if !errors.Is(err, ErrTooCostly) && !errors.Is(err, context.DeadlineExceeded) ||
				len(found.Minions) > 0 {
				t.Errorf("%d minions, %v", len(found.Minions), err)
			}
			if !strings.HasPrefix(name, "not ") || strings.Contains(name, "inside") {
				return
			}
			if ok, _, err := Means(t.Context(), c.tgtType, c.tgt, newLarge(1), l.ids[0]); ok {
				t.Errorf("means the minion that asks, %v", err)
			}
		})
	}
}
