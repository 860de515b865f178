package differential

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"clustermaster/value/fnmatch"
)

// FuzzGlobs compares value/fnmatch with Python's fnmatch, as Salt matches ids, tags and functions.
func FuzzGlobs(f *testing.F) {
	for _, s := range [][2]string{{"*", ""}, {"web*", "web/a"}, {"web[0-9]", "web7"}, {"web[!0-9]", "web7"},
		{"web[^0-9]", "web^"}, {"[]]", "]"}, {"[!]]", "]"}, {"[", "["}, {"[abc", "[abc"}, {"w?b", "wéb"},
		{"salt/job/*/ret/*", "salt/job/1/ret/web/x"}, {"[b-a]", "b"}, {"[!b-a]", "b"}, {"[a-c-e]", "-"},
		{"[--0]", "/"}, {"[a-]", "-"}, {"[!-a]", "a"}, {"[]-a]", "^"}, {"*\n", "a\n"}, {"a**b?c", "ab\nc"},
		{"[[]*", "[x"}, {"[\\]", "\\"}, {"[a&&b]", "&"}, {"[a||b]", "|"}, {"[a~~b]", "~"}, {"[!!]", "!"}} {
		f.Add(s[0], s[1])
	}
	salt := open(f, "globs", nil)
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if !utf8.ValidString(pattern) || !utf8.ValidString(name) || len(pattern)+len(name) > 400 {
			return
		}
		names := []string{name, pattern, name + "x", "x" + name, ""}
		slices.Sort(names)
		names = slices.Compact(names)
		theirs, ok := salt.askJSON(t, []any{pattern, names})
		if !ok {
			return
		}
		matched := []string{}
		for _, n := range names {
			if fnmatch.Match(pattern, n) {
				matched = append(matched, n)
			}
		}
		for i, ours := range [][]string{matched, fnmatch.Filter(names, pattern)} {
			if theirs[i].kind == '!' {
				salt.differ(t, "%q: Salt's %v", pattern, theirs[i])
			}
			var want []string
			if err := json.Unmarshal(theirs[i].body, &want); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ours, want) {
				salt.differ(t, "%q of %q (filter: %t):\nours   %q\nSalt's %q", pattern, names, i == 1, ours, want)
			}
		}
	})
}
