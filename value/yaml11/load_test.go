package yaml11

import (
	"errors"
	"strings"
	"testing"

	"clustermaster/value"
)

func TestLoadDocumentKnowsLines(t *testing.T) {
	t.Parallel()
	doc, err := LoadDocument([]byte("# head\na: 1\n\nb:\n  c: 2\n'd e': 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"a": 2, "b": 4, "d e": 6, "c": 0} {
		if got := doc.Lines[key]; got != want {
			t.Errorf("line of %q = %d, want %d", key, got, want)
		}
	}
	if v, ok := doc.Value.(value.Map).Get("b"); !ok || len(v.(value.Map)) != 1 {
		t.Errorf("b = %#v, %t", v, ok)
	}
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"duplicate key", "a: 1\nb: 2\na: 3\n",
			"line 3, column 1: found conflicting ID 'a': this key stands twice in one mapping"},
		{"nested duplicate", "x:\n  a: 1\n  a: 2\n",
			"line 3, column 3: found conflicting ID 'a': this key stands twice in one mapping"},
		{"bad int", "a: !!int x\n", `line 1, column 4: "x" is not an integer`},
		{"foreign tag", "a: !!python/object:os.system x\n",
			"line 1, column 4: no value has the tag !!python/object:os.system here"},
		{"list as key", "? [a]\n: b\n",
			"line 1, column 3: found unacceptable key: a list or mapping can't be one"},
		{"second document", "a: 1\n---\nb: 2\n",
			"line 2: expected a single document, but found another one"},
		{"open list", "a: [1,\nb: 2\n", "line 3: did not find expected ',' or ']'"},
		{"tab", "\ta: 1\n", "line 1: found character that cannot start any token"},
		{"anchor twice", "a: &x 1\nb: &x 2\n", `line 2, column 4: found duplicate anchor "x"`},
		{"anchor in itself", "a: &x [*x]\n", ""},
		{"deep", strings.Repeat("[", 1500) + strings.Repeat("]", 1500), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v, err := Load([]byte(c.text))
			var e *Error
			if !errors.As(err, &e) || v != nil {
				t.Fatalf("got %v, %v; want an *Error and nothing else", v, err)
			}
			if c.want != "" && err.Error() != c.want {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
		})
	}
}

func TestLoadBoundsAliases(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	prev := "a0"
	for _, n := range []string{"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"} {
		b.WriteString(n + ": &" + n + " [" + strings.TrimSuffix(strings.Repeat("*"+prev+", ", 10),
			", ") + "]\n")
		prev = n
	}
	if v, err := Load([]byte(b.String())); err == nil ||
		!strings.Contains(err.Error(), "too large") || v != nil {
		t.Errorf("ten to the tenth nodes: got %v, %v", v, err)
	}
	text := "[&a " + strings.Repeat("A", 1<<16) + strings.Repeat(",*a", 1<<15) + "]" // 2 GiB
	var e *Error
	if _, err := Load([]byte(text)); !errors.As(err, &e) || !e.TooLarge {
		t.Errorf("repeated text: got %v", err)
	}
	merges := "{y: &a {<<: *a, x: 1}, z: " + strings.Repeat("A", 1000) + "}" // which Salt takes
	for _, text := range []string{text, merges} {
		if v, err := ReadArg(text); err == nil || v != text || ParseArg(text) != text {
			t.Errorf("argument: got %.20v, %v", v, err)
		}
	}
}

func TestParseArgsKeepsText(t *testing.T) {
	t.Parallel()
	args, kwargs := ParseArgs([]string{"1", "a=1", "b=[1]"}, "a")
	if !same([]any{int64(1)}, any(args)) {
		t.Errorf("args = %#v", args)
	}
	if want := (value.Map{{Key: "a", Value: "1"}, {Key: "b", Value: []any{int64(1)}}}); !same(want,
		kwargs) {
		t.Errorf("kwargs = %#v, want %#v", kwargs, want)
	}
}

func TestDumpTakesForeignValues(t *testing.T) {
	t.Parallel()
	v := value.Map{
		{Key: "b", Value: int8(1)}, {Key: "a",
			Value: map[string]any{"z": []string{"x"}, "y": uint(7)}},
		{Key: "c", Value: value.Raw{1}}, {Key: "d", Value: struct{}{}},
	}
	const want = "a:\n  y: 7\n  z:\n  - x\nb: 1\nc: 1\nd: NULL\n"
	if got := string(Dump(v)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := string(DumpStyle(v[:2], Style{Unsorted: true})); !strings.HasPrefix(got,
		"b: 1\na:\n") {
		t.Errorf("unsorted: got\n%s", got)
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"a: 1\n", "a: &x [1, *x]\n", "b: &b {p: 1}\nc: {<<: *b}\n", "a: |\n  x\n", "- ? a\n",
		"[a?b, http://x/?y]", "%YAML 1.2\n---\na", "a: !!binary aGk=", "a: ! ''", "{a:, b}",
		"a: 0x_", "a: 1:60:3", "\xff\xfe", "a: \"\\x41\"", "? |\n x\n: y", "!!set {a}",
		"a: 12:30:45.5", "--- >\n x\n\n\n  y\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Load(b)
		if err != nil {
			if v != nil {
				t.Fatalf("error and a value: %v, %v", v, err)
			}
			return
		}
		if plainValue(v) {
			// What was read prints to something that reads back as the same.
			again, err := Load(DumpStyle(v, Style{Unsorted: true}))
			if err != nil {
				t.Fatalf("dump of %#v does not load: %v\n%s", v, err,
					DumpStyle(v, Style{Unsorted: true}))
			}
			if !same(v, again) {
				t.Fatalf("dump of %#v loads as %#v", v, again)
			}
		}
	})
}

// plainValue leaves out what a dump can't give back: sets, and text with
// characters that the parser normalizes or refuses.
func plainValue(v any) bool {
	switch v := v.(type) {
	case string:
		return len(v) < 500
	case []byte, value.Set:
		return false
	case []any:
		for _, x := range v {
			if !plainValue(x) {
				return false
			}
		}
	case value.Map:
		for _, p := range v {
			if !plainValue(p.Key) || !plainValue(p.Value) {
				return false
			}
		}
	}
	return true
}

func FuzzParseArg(f *testing.F) {
	for _, s := range []string{"1", "[1, {a: b}]", "a#b", "!", "{a: 1}", "1_0",
		"20261121093513244628"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ParseArg(s)
		ParseArgs([]string{s})
	})
}
