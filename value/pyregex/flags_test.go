package pyregex

import (
	"strings"
	"testing"
)

// TestFlags: what re.search says of the same (Python 3.11).
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expr        string
		flags       Flags
		s           string
		text, bytes bool
	}{
		{"^b", 0, "a\nb", false, false}, {"^b", Multiline, "a\nb", true, true},
		{"a$", 0, "a\nb", false, false}, {"a$", Multiline, "a\nb", true, true},
		{"b$", 0, "a\nb\n", true, true},
		{"a.b", 0, "a\nb", false, false}, {"a.b", DotAll, "a\nb", true, true},
		{"A b", IgnoreCase, "a B", true, true}, {"a b # c", Verbose, "ab", true, true},
		{"a b", Verbose | Multiline, "a b", false, false},
		{"^a.b$", Multiline, "aüb", true, false}, {"^a..b$", Multiline, "aüb", false, true},
		{`a\wb`, Multiline, "aüb", true, false}, {`a\W\Wb`, Multiline, "aüb", false, true},
		{"Ü", IgnoreCase, "ü", true, false}, {"[ü]{2}", 0, "ü", false, true},
		{`a\sb`, Multiline, "a\vb", true, true}, {`a(?=b)`, Multiline, "ab", true, true},
		{`(?P<x>a)(?P=x)`, 0, "aa", true, true}, {`\bü`, 0, " ü", true, false},
	} {
		text, err := SearchText(tt.expr, tt.flags)
		if err != nil {
			t.Fatal(tt.expr, err)
		}
		if hit, err := text(tt.s); hit != tt.text || err != nil {
			t.Errorf("%q %d in text %q: %v, %v", tt.expr, tt.flags, tt.s, hit, err)
		}
		search, err := SearchBytes([]byte(tt.expr), tt.flags)
		if err != nil {
			t.Fatal(tt.expr, err)
		}
		if hit, err := search([]byte(tt.s)); hit != tt.bytes || err != nil {
			t.Errorf("%q %d in bytes %q: %v, %v", tt.expr, tt.flags, tt.s, hit, err)
		}
	}
	for _, expr := range []string{"(", strings.Repeat("a", maxLength+1)} {
		if _, err := SearchText(expr, 0); err == nil {
			t.Errorf("%.10s compiles", expr)
		}
		if _, err := SearchBytes([]byte(expr), 0); err == nil {
			t.Errorf("%.10s compiles", expr)
		}
	}
	for _, flag := range []Flags{Unicode, Locale} {
		if _, err := SearchBytes([]byte("a"), flag); err == nil {
			t.Errorf("flag %d is taken", flag)
		}
	}
	if _, err := SearchBytes([]byte(`\xe9`), 0); err == nil {
		t.Error("a byte by its number is taken")
	}
}

// TestSearchTellsThatItGaveUp: no answer is not "not found".
func TestSearchTellsThatItGaveUp(t *testing.T) {
	t.Parallel()
	search, err := SearchText("(?=a)(a+)+$", 0)
	if err != nil {
		t.Fatal(err)
	}
	if hit, err := search(strings.Repeat("a", 64) + "!"); hit || err == nil {
		t.Error(hit, err)
	}
	if hit, err := search(strings.Repeat("a", maxBacktracked+1)); hit || err == nil {
		t.Error(hit, err)
	}
}

func FuzzSearchBytes(f *testing.F) {
	f.Add([]byte("(?P<a>x)(?P=a"), int64(8), []byte("xx"))
	f.Add([]byte("\xff\\"), int64(64), []byte("\x80"))
	f.Fuzz(func(_ *testing.T, expr []byte, flags int64, s []byte) {
		if len(expr) > 64 || len(s) > 256 {
			return
		}
		if search, err := SearchBytes(expr, Flags(flags)); err == nil {
			_, _ = search(s)
		}
	})
}
