package pyregex

import (
	"regexp"
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
	test, ok := Start("(?=a)(a+)+$") // looking ahead needs backtracking
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

// FuzzLinear: where an expression is taken to Go's regexp, both give the same answer.
func FuzzLinear(f *testing.F) {
	for _, expr := range []string{
		"web.*", "(web|db)0", `web\d+\.a$`, "(?i)cache", ".*9\\..*", "[a-c].*", "[^a-c]x?", "a{2,3}b{1}", "^$", "(?P<n>x)|y", "a??b*?c+?", `\bweb\B`, "a**", "a*+", "[a-z&&b]", "{,2}", "a{,2}",
		"x{1001}", "[]a]", "[\\d-x]", "]", "a|", "(", "(?i)(?i)a", "a$b", "\\_", "[z-a]", "a{3,2}", "a{1}{2}", "(?P<a>x)(?P<a>y)", "(?:)", "()", "[a\\]b]",
	} {
		f.Add(expr, "web01.a.net")
		f.Add(expr, "aabbc")
		f.Add(expr, "")
	}
	f.Fuzz(func(t *testing.T, expr, s string) {
		if len(expr) > 40 || len(s) > 20 || !printable(s) || !linear(expr) {
			return
		}
		for _, ends := range [][2]string{{`\A(?:`, ")"}, {`\A(?:`, `)\z`}, {"(?:", ")"}} {
			re, err := regexp.Compile(ends[0] + expr + ends[1])
			if err != nil {
				return
			}
			slow, ok := backtrack(ends[0], expr, ends[1])
			if !ok {
				continue // then it is refused before
			}
			if began := time.Now(); slow(s) != re.MatchString(s) && time.Since(began) < regexTimeout/2 {
				t.Fatalf("%q on %q: Go says %v", ends[0]+expr+ends[1], s, re.MatchString(s))
			}
		}
	})
}
