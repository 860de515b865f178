package memory

import (
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"clustermaster/value"
)

// TestKeep: what decodes to many times its bytes is refused below the bound of stored bytes.
func TestKeep(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(16 << 20))
	most := MostOfAnswer()
	arrays := slices.Repeat([]any{[]any{}}, int(most/2))
	for _, tt := range []struct {
		name  string
		v     any
		taken bool
	}{
		{"a text of that size", strings.Repeat("x", int(most)-5), true},
		{"a longer text", strings.Repeat("x", int(most)), false},
		{"as many empty arrays", arrays, false},
		{"few empty arrays", arrays[:most/11], true},
	} {
		packed, err := value.Pack(tt.v)
		if err != nil {
			t.Fatal(err)
		}
		var a Answer
		for range 3 { // what is given back counts no more
			if err := a.Keep(packed); (err == nil) != tt.taken {
				t.Errorf("%s: %v", tt.name, err)
			} else if err == nil {
				a.Release(Size(packed))
			}
		}
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	most := MostOfAnswer()
	for _, tt := range []struct {
		name    string
		holds   []int64
		refused int // the first one; -1: none
	}{
		{"as much as may be", []int64{most - 5, 0, 5}, -1},
		{"one byte more", []int64{most - 5, 6}, 1},
		{"much more", []int64{1, math.MaxInt64}, 1},
		{"nothing", nil, -1},
	} {
		var a Answer
		got := -1
		for i, n := range tt.holds {
			if err := a.Hold(n); err != nil {
				var e *AnswerError
				if !errors.As(err, &e) || e.Most != most || !strings.Contains(err.Error(), "too much for the memory") {
					t.Errorf("%s: %v", tt.name, err)
				}
				got = i
				break
			}
		}
		if got != tt.refused {
			t.Errorf("%s: refused %d, want %d", tt.name, got, tt.refused)
		}
	}
}
