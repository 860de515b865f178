package pyregex

import (
	"strings"
	"testing"
	"time"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		expr, s             string
		start, full, search bool
	}{
		{"we", "web", true, false, true}, {"web", "web", true, true, true}, {"w|web", "web", true, true, true},
		{"eb", "web", false, false, true}, {"web$", "web\n", true, false, true}, {`we\Z`, "web", false, false, false},
		{`(?P<x>w)e(?P=x)?b`, "web", true, true, true}, {"", "web", true, false, true}, {`\.swp$`, "a/.b.swp", false, false, true},
		{"(?i)WEB", "web", true, true, true}, {"^d/", "d/f", true, false, true}, {"^d/", "x\nd/f", false, false, false},
	}
	for _, tt := range tests {
		for kind, c := range map[string]struct {
			make func(string) (func(string) bool, bool)
			want bool
		}{"match": {Start, tt.start}, "fullmatch": {Full, tt.full}, "search": {Search, tt.search}} {
			test, ok := c.make(tt.expr)
			if !ok || test(tt.s) != c.want {
				t.Errorf("%s(%q, %q): compiled %v, want %v", kind, tt.expr, tt.s, ok, c.want)
			}
		}
	}
	if _, ok := Start("("); ok {
		t.Error("( compiles")
	}
	if _, ok := Start(strings.Repeat("a", maxLength+1)); ok {
		t.Error("an endless expression compiles")
	}
}

func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	test, ok := Start("(a+)+$")
	if !ok {
		t.Fatal("does not compile")
	}
	began := time.Now()
	for range 100 {
		if test(strings.Repeat("a", 64) + "!") {
			t.Fatal("matches")
		}
	}
	if took := time.Since(began); took > 4*regexBudget {
		t.Errorf("100 texts took %v", took)
	}
}

func FuzzStart(f *testing.F) {
	f.Add("(?P<a>x)(?P=a", "xx")
	f.Add(`\`, "x")
	f.Fuzz(func(_ *testing.T, expr, s string) {
		if test, ok := Start(expr); ok {
			test(s)
		}
	})
}
