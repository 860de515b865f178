package pyregex

import (
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		expr, s             string
		start, full, search bool
	}{
		{"we", "web", true, false, true}, {"web", "web", true, true, true},
		{"w|web", "web", true, true, true},
		{"eb", "web", false, false, true}, {"web$", "web\n", true, false, true},
		{`we\Z`, "web", false, false, false},
		{`(?P<x>w)e(?P=x)?b`, "web", true, true, true}, {"", "web", true, false, true},
		{`\.swp$`, "a/.b.swp", false, false, true},
		{"(?i)WEB", "web", true, true, true}, {"^d/", "d/f", true, false, true},
		{"^d/", "x\nd/f", false, false, false},
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

// TestDialect holds what Python's re.match answers, and the engine that backtracks.
func TestDialect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expr, s string
		hit     bool
	}{
		{"[a-z-[d]]?b-1", "db-1", true}, {"[a-z-[d]]?b-1", "]b-1", false}, {"[[]x", "[x", true},
		{"[]d]b", "db", true}, {"[]d]b", "]b", true}, {"[^]d]b", "]b", false},
		{`[\]d]b`, "]b", true},
		{"d{,1}b", "db", true}, {"d{,1}b", "b", true}, {"d{,1}b", "d{,1}b", false},
		{"d{,}b", "dddb", true}, {"d{}b", "d{}b", true}, {"d{a}", "d{a}", true},
		{"(?P<a>d)(?P=a)b", "ddb", true}, {"(?u)db", "db", true}, {"(?iu:D)b", "db", true},
		{"(?#x)db", "db", true}, {"(?i)DB", "db", true}, {"(?x) d b", "db", true},
		{"(?<!x)db", "db", true}, {"(?(1)x|d)b", "db", false},
		{"(?<n>d)b|db", "db", false}, {"(?'n'd)b|db", "db", false}, {"(?n)(d)b|db", "db", false},
		{"(?L)db", "db", false}, {"(?P>a)|db", "db", false}, {"(?#x", "x", false},
		{"(?)", "", false}, {"(?s-i)db", "db", false}, {"(?i-i:d)b", "db", false}, {"(?-i:d)b", "db", true},
		{`\10*`, "db", false}, {`(d)(b)\2\1`, "dbbd", true}, {`(?P<n>d)(b)\1`, "dbd", true},
		{`(?P<n>d)(b)\2`, "dbb", true}, {`(d\1)`, "dd", false}, {`(d)\2|d`, "d", false},
		{`\0`, "\x00", true}, {`\08`, "\x008", true}, {`(d)\18`, "dd8", false}, {`\400`, "d", false},
		{`[\8]`, "8", false}, {`[\1]`, "\x01", true}, {`[\144]b`, "db", true}, {`(d)\1{2}`, "ddd", true},
		{"$*", "db", false}, {"^+d", "db", false}, {`\b?d`, "db", false}, {`\A{0,}d`, "db", false},
		{"^{}d", "{}d", true}, {"d$|db", "db", true}, {"$(?#x)*", "db", false},
		{"(?", "x", false}, {")|(", "db", false}, {")|.*(", "db", false}, {"d)(b", "db", false},
		{`\pLb|db`, "db", false}, {`\k<n>|db`, "db", false}, {`\Gdb`, "db", false},
		{`\zdb|db`, "db", false}, {`\hdb|db`, "db", false}, {`db\Z`, "db", true},
		{`[\Z]|db`, "db", false}, {`[\B]|db`, "db", false},
		{`a\sb`, "a\x1cb", true}, {`a\Sb`, "a\x1cb", false}, {`a[\s.]b`, "a\x1fb", true},
		{`a\s+b`, "a \tb", true},
		{"[d", "d", false}, {`[d\`, "d", false}, {`db\`, "db", false}, {`\x64b`, "db", true},
		{`\u0064b`, "db", true}, {`\144b`, "db", true}, {`\-b`, "-b", true},
	} {
		test, ok := Start(tt.expr)
		if hit := ok && test(tt.s); hit != tt.hit {
			t.Errorf("%q in %q: %v", tt.expr, tt.s, hit)
		}
		if slow, ok := backtrack(NewBudget(regexBudget), `\A(?:`, tt.expr, ")"); (ok &&
			slow(tt.s)) != tt.hit {
			t.Errorf("%q in %q, backtracking: %v", tt.expr, tt.s, !tt.hit)
		}
	}
}

func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	test, ok := Start("(?=a)(a+)+$") // looking ahead needs backtracking
	if !ok {
		t.Fatal("does not compile")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := ThreadTime()
	for range 100 {
		if test(strings.Repeat("a", 64) + "!") {
			t.Fatal("matches")
		}
	}
	if took := ThreadTime() - began; took > 4*regexBudget {
		t.Errorf("100 texts took %v", took)
	}
}

// endless is an expression that goes on trying for ever on a text.
const endless, on = "(?=a)(a+)+$",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"

// TestForbids: what takes too long to tell is no match where that grants something, and one where
// it forbids something.
func TestForbids(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(string) (func(string) bool, bool)
		want bool
	}{"search": {Search, false}, "full": {Full, false}, "search forbids": {Forbids,
		true}, "list forbids": {ListForbids, true}} {
		test, ok := c.make(endless)
		if !ok {
			t.Fatal("does not compile")
		}
		for range 5 { // the last ones find no time left
			if test(on) != c.want {
				t.Errorf("%s: %v", name, !c.want)
			}
		}
	}
	for expr, want := range map[string]bool{"a": true, "b": false, "(?=a)a": true,
		"(?=b)a": false} {
		if test, ok := Forbids(expr); !ok || test("xa") != want {
			t.Errorf("%s forbids: %v", expr, !want)
		}
	}
	if _, ok := Forbids("("); ok {
		t.Error("( compiles")
	}
}

// TestListForbids holds what Salt's expr_match answers.
func TestListForbids(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expr, s string
		want    bool
	}{
		{"web|db", "web1", true}, {"web|db", "db", true}, {"web|db", "db1", false},
		{"web|db|qa", "db1", true}, {"(web|db)", "web1", false}, {"web", "web1", false},
		{"web|db", "xweb", false}, {"a|ab", "ab", true}, {"(?=w)web|db", "web1", true},
		{"*web", "web", false},
	} {
		test, ok := ListForbids(tt.expr)
		if got := ok && test(tt.s); got != tt.want {
			t.Errorf("%q forbids %q: %v", tt.expr, tt.s, got)
		}
		if full, ok := Full(tt.expr); ok && full(tt.s) && !tt.want {
			t.Errorf("%q matches all of %q, and does not forbid it", tt.expr, tt.s)
		}
		if Exposed(tt.s, nil, []string{tt.expr}) == tt.want && tt.expr[0] != '*' {
			t.Errorf("%q, with the blacklist %q: exposed %v", tt.s, tt.expr, tt.want)
		}
	}
	if Exposed("web1", []string{"web|db"}, nil) {
		t.Error("a whitelist exposes what only starts like an alternative")
	}
}

// TestForbidsRecovers: a test that lives long and had to give up tells again what it can tell.
func TestForbidsRecovers(t *testing.T) {
	t.Parallel()
	test, ok := Forbids(endless)
	if !ok {
		t.Fatal("does not compile")
	}
	for range 4 { // all of the budget
		test(on)
	}
	for began := time.Now(); test("web"); {
		if time.Since(began) > 10*time.Second {
			t.Fatal("all is forbidden for ever")
		}
	}
	if test("web") || !test("aaa") {
		t.Error("plain texts are not told apart")
	}
}

// TestOneBudget: expressions that share a budget take no more time than it has, and it says that
// they went undecided.
func TestOneBudget(t *testing.T) {
	t.Parallel()
	b := NewBudget(300 * time.Millisecond)
	began := time.Now()
	for range 1000 {
		test, ok := StartIn(b, endless)
		if !ok || test(on) {
			t.Fatal("matches, or does not compile")
		}
	}
	if took := time.Since(began); took > 5*time.Second || !b.Spent() {
		t.Errorf("took %v, spent %v", took, b.Spent())
	}
	fresh := NewBudget(time.Second)
	if test, ok := StartIn(fresh, "(?=w)web"); !ok || !test("web1") || test("db1") ||
		fresh.Spent() {
		t.Error("a plain match spent the budget")
	}
}

// TestRepeatsAreNotWrittenOut: a short expression makes no large program.
func TestRepeatsAreNotWrittenOut(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]bool{
		"web.*": true, "(web|db)[0-9]{1,4}": true, "a{999}": true, "(a{100}){9}": true,
		"((a{30}){30}){30}": false, "(((a{1,9}){1,9}){1,9}){1,99}": false,
		strings.Repeat("(a|b)?", 5000): false,
	} {
		if (Program(expr) > 0) != want {
			t.Errorf("%.40s is small: %v", expr, !want)
		}
		if test, ok := Start(expr); !ok || test("!") && !strings.Contains(expr, "?") {
			t.Errorf("%.40s: compiles %v", expr, ok)
		}
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
		"web.*", "(web|db)0", `web\d+\.a$`, "(?i)cache", ".*9\\..*", "[a-c].*", "[^a-c]x?",
		"a{2,3}b{1}", "^$", "(?P<n>x)|y", "a??b*?c+?", `\bweb\B`, "a**", "a*+", "[a-z&&b]", "{,2}",
		"a{,2}",
		"x{1001}", "[]a]", "[\\d-x]", "]", "a|", "(", "(?i)(?i)a", "a$b", "\\_", "[z-a]", "a{3,2}",
		"a{1}{2}", "(?P<a>x)(?P<a>y)", "(?:)", "()", "[a\\]b]",
	} {
		f.Add(expr, "web01.a.net")
		f.Add(expr, "aabbc")
		f.Add(expr, "")
	}
	f.Fuzz(func(t *testing.T, expr, s string) {
		if len(expr) > 40 || len(s) > 20 || !printable(s) || !linear(expr) {
			return
		}
		for _, ends := range [][2]string{{`\A(?:`, ")"}, {`\A(?:`, `)\z`}, {"(?:", ")"},
			{`\A(?:`, `\z)`}} {
			re, err := regexp.Compile(ends[0] + expr + ends[1])
			if err != nil {
				return
			}
			slow, ok := backtrack(NewBudget(regexBudget), ends[0], expr, ends[1])
			if !ok {
				continue // then it is refused before
			}
			if began := time.Now(); slow(s) != re.MatchString(s) &&
				time.Since(began) < regexTimeout/2 {
				t.Fatalf("%q on %q: Go says %v", ends[0]+expr+ends[1], s, re.MatchString(s))
			}
		}
	})
}

// TestLateEnds: a match that gets no processor until long after its timeout begins anew, and leaves
// time for the texts that follow, whatever other goroutines use before and meanwhile. One that uses
// a processor all the time does not.
func TestLateEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const budget = 30 * time.Millisecond
		b := NewBudget(budget)
		spin := func() {
			for used := ThreadTime(); ThreadTime() < used+budget; {
			}
		}
		elsewhere := func() {
			done := make(chan bool)
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				spin()
				close(done)
			}()
			<-done
		}
		elsewhere()
		begun := 0
		late := func(timeout time.Duration) (bool, error) {
			if begun++; begun == 3 {
				return true, nil
			}
			elsewhere()
			time.Sleep(timeout + 10*time.Second)
			return false, errSpent
		}
		if found, err := b.try(late); err != nil || !found || b.Spent() {
			t.Errorf("after %d starts: %v, %v, spent %v", begun, found, err, b.Spent())
		}
		if b.left <= budget/2 {
			t.Errorf("%v left of %v", b.left, budget)
		}
		begun = 0
		busy := func(timeout time.Duration) (bool, error) {
			begun++
			spin()
			time.Sleep(timeout) // fake
			return false, errSpent
		}
		if _, err := b.try(busy); err == nil || !b.Spent() || begun != 1 || b.left > 0 {
			t.Errorf("after %d starts: %v, spent %v, %v left", begun, err, b.Spent(), b.left)
		}
		b.left = regexBudget
		found, err := b.try(func(time.Duration) (bool, error) { return true, nil })
		if err != nil || !found {
			t.Errorf("the next text: %v, %v", found, err)
		}
	})
}
