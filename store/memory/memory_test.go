package memory

import (
	"errors"
	"math"
	"strings"
	"testing"
)

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
