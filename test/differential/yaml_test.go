package differential

import (
	"bytes"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"clustermaster/salt/render"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// words are what documents are made of beside what the fuzzer changes in them.
var words = []string{"a", "b: ", "- ", "\n", "\n  ", "\n    ", "\n- ", "\nc:\n", "? ", ": ", "[", "]", "{", "}", ", ",
	"&x ", "*x", "<<: *x", "<<: [*x, *y]", "&y ", "*y", "!!str ", "!!int ", "!!float ", "!!bool ", "!!null ", "!!set ",
	"!!omap ", "!!pairs ", "!!binary ", "!!map ", "!!seq ", "!!timestamp ", "! ", "!x ", "|\n  ", ">\n  ",
	"|-\n  ", ">+\n  ",
	"|2\n   ", "# c\n", " #d", "'x'", "\"y\"", "\"\\x41\\u00e9\\n\"", "''", "\"\"", "'it''s'", "--- ", "...\n", "---\n",
	"%YAML 1.1\n", "%TAG ! x:\n", "yes", "No", "on", "OFF", "true", "False", "~", "null", "Null", "0", "017", "0o17",
	"0x1F", "0b11", "-017", "+1", "1_000", "1:30", "1:60", "-1:30.5", "1.5", "1e3", "1.0e+3", ".inf", "-.INF",
	".nan", "._1",
	"1.", "2020-01-02", "2020-01-02 03:04:05Z", "=", "<<", "@", "`", "%", "\t", "é", "\u0085", "\u2028",
	"\ufeff", "\U0001f600",
	"99999999999999999999", "key: value", "x: {y: [1, 2]}", "a b c", "http://x/?y#z", "a:b", "a #b", "-", "?", ":", "!",
	"'", "\"", "\\", "\"\\", "|", ">", "&", "*", "\r\n", "\r"}

// FuzzYAML compares yaml11 with the loader of Salt's configurations, and the renderer "yaml" with
// that of its SLS files.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{"a: 1\n", "a: &x [1, 2]\nb: *x\n", "b: &b {p: 1}\nc: {<<: *b, q: 2}\n",
		"a: |\n  x\n y\n", "- ? a\n",
		"[a?b, http://x/?y]", "%YAML 1.2\n---\na", "a: !!binary aGk=", "a: ! ''", "{a:, b}", "a: 0x_",
		"a: 1:60:3",
		"a: \"\\x41\"", "? |\n x\n: y", "!!set {a, b}", "a: 12:30:45.5", "--- >\n x\n\n\n  y\n", "a: 1\na: 2\n",
		"1: a\n1.0: b\n",
		"web:\n  pkg.installed:\n    - name: nginx\n    - version: 1.10\n",
		"x: [0644, 0x1F, 1_000, 2020-01-02, yes, \"no\", ~]",
		"<<: {a: 1}\nb: 2\n", "x: <<\n", "=: 1\n", "!!omap [a: 1, b: 2]", "!!pairs [a: 1, a: 2]",
		"a: 'x\n\n  y'\n", "{a: b, c}",
		"? a\n? b\n", "", "---\n", "false", "a:\n- b\n-  c: d\n   e: f\n"} {
		f.Add(s, []byte(nil))
	}
	f.Add("", []byte{0, 7, 1, 2, 40, 10, 3})
	f.Add("", []byte{3, 22, 27, 60, 15, 2, 80, 90, 4, 9})
	warm()
	salt := open(f, "yaml", nil)
	f.Fuzz(func(t *testing.T, source string, choices []byte) {
		for _, c := range choices[:min(len(choices), 40)] {
			source += words[int(c)%len(words)]
		}
		if len(source) > 1000 {
			return
		}
		theirs, ok := salt.ask(t, []byte(source))
		if !ok {
			return
		}
		if strings.LastIndex(source, "\ufeff") > 0 {
			salt.skip(t, "byte order marks") // docs/differences.md, Cosmetic, Rendering: byte order marks
		}
		v, err := yaml11.Load([]byte(source))
		if rule := differentYAML(source, v, err, theirs[0]); rule != "" {
			salt.skip(t, rule)
		}
		if ours := show(v); (err != nil) != (theirs[0].kind == '!') ||
			err == nil && !bytes.Equal(ours, theirs[0].body) {
			salt.differ(t, "configuration %q:\nours   %q, %v\nSalt's %v", source, ours, err, theirs[0])
		}
		if !utf8.ValidString(source) || strings.HasPrefix(source, "#!") ||
			strings.TrimSpace(source) == "" {
			// Other renderers are named, or no renderer is asked.
			return
		}
		v, err = renderer().Render(t.Context(), render.Source{Path: "/t.sls", SLS: "t",
			Data: []byte(source), Once: true}, "yaml", render.Context{}, nil)
		ours := show(wire(v))
		same := (err != nil) == (theirs[1].kind == '!') && (err != nil || bytes.Equal(ours, theirs[1].body))
		if !same && strings.Contains(source, "!!binary") {
			salt.except("damaged base64") // Cosmetic, Rendering: damaged base64
			return
		}
		if !same {
			salt.differ(t, "SLS %q:\nours   %q, %v\nSalt's %v", source, ours, err, theirs[1])
		}
	})
}

var (
	questions = regexp.MustCompile(`(?s)[\[{].*\?`)
	loneTag   = regexp.MustCompile(`(?m)(?:^|\s)!(?:\s|$)`)
)

// differentYAML names the rule that leaves a configuration out. Each is a line of
// docs/differences.md: May break, Configuration, rare YAML.
func differentYAML(source string, v any, err error, theirs part) string {
	switch {
	case err != nil && theirs.kind == '=' && (questions.MatchString(source) ||
		strings.HasSuffix(err.Error(), "found unexpected ':' or '?'")):
		return "colons and question marks in flow collections"
	case err == nil && strings.Contains(source, "\t") &&
		bytes.Contains(theirs.body, []byte("found character that cannot start any token")):
		return "tabs"
	case err == nil && theirs.kind == '=' && loneTag.MatchString(source) && !bytes.Equal(show(v), theirs.body):
		return "lone tags"
	}
	return ""
}

// wire is a value as minions get it: integers of more than 64 bits are text.
func wire(v any) any {
	switch v := v.(type) {
	case *big.Int:
		return v.String()
	case value.Map:
		out := make(value.Map, len(v))
		for i, p := range v {
			out[i] = value.Pair{Key: wire(p.Key), Value: wire(p.Value)}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = wire(v[i])
		}
		return out
	}
	return v
}
