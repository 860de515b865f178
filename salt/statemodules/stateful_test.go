package statemodules

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"clustermaster/value"
)

func ranWith(stdout string) value.Map {
	return args("name", "n", "changes", args("pid", int64(1), "retcode", int64(0), "stdout", stdout,
		"stderr", ""), "result", true, "comment", "run")
}

// TestStateful: the reports that a command may print. The expected results are those of Salt's
// cmd._reinterpreted_state.
func TestStateful(t *testing.T) {
	t.Parallel()
	const unread = "Failed parsing script output! Stdout must be JSON or a line of name=value pairs."
	tests := []struct{ name, stdout, changes, result, comment string }{
		{"nothing", "", "{}", "True", ""},
		{"no change", "changed=no comment='all is well'", "{}", "True", "all is well"},
		{"last line", "line\nchanged=yes n=2",
			"{'changed': 'yes', 'n': '2', 'pid': 1, 'retcode': 0, 'stdout': 'line', 'stderr': ''}",
			"True", ""},
		{"one line loses a letter", "changed=yes w=ü",
			"{'changed': 'yes', 'w': 'ü', 'pid': 1, 'retcode': 0, 'stdout': 'changed=yes w=', 'stderr': ''}", "True", ""},
		{"json", `{"changed": 1, "a": [1, 2.5, {"b": null}], "comment": "said"}`,
			"{'changed': 1, 'a': [1, 2.5, {'b': None}], 'pid': 1, 'retcode': 0, 'stdout': '', 'stderr': ''}", "True", "said"},
		{"json that is no map", `[1]`, "{}", "False",
			"script JSON output must be a JSON object (e.g., {})!"},
		{"text", "just a text", "{'pid': 1, 'retcode': 0, 'stdout': 'just a text', 'stderr': ''}",
			"False", unread},
		{"two signs", "a=b=c", "{'pid': 1, 'retcode': 0, 'stdout': 'a=b=c', 'stderr': ''}", "False",
			unread},
		{"open quotation", "a='b", "{'pid': 1, 'retcode': 0, 'stdout': \"a='b\", 'stderr': ''}",
			"False", unread},
		{"too deep", strings.Repeat("[", 200) + strings.Repeat("]", 200), "", "False", unread},
	}
	for _, tt := range tests {
		ret, err := reinterpreted(ranWith(tt.stdout), true)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		changes, _ := ret.Get("changes")
		result, _ := ret.Get("result")
		if got := value.Str(changes); tt.changes != "" && got != tt.changes ||
			value.Str(result) != tt.result || ret.String("comment") != tt.comment {
			t.Errorf("%s: %s %v %q\nwant %s %s %q", tt.name, got, result, ret.String("comment"),
				tt.changes, tt.result, tt.comment)
		}
	}
	if _, err := reinterpreted(ranWith("changed=maybe"), true); err == nil ||
		err.Error() != "Failed parsing boolean value: maybe" {
		t.Error(err)
	}
}

// FuzzStateful: no output of a command causes a panic, JSON decodes as with
// encoding/json, and text stays text.
func FuzzStateful(f *testing.F) {
	for _, s := range []string{"", "changed=yes a=b", "x\nchanged=1",
		`{"changed": true, "a": {"b": [1, "c"]}}`, `[]`, `{"a": 1, "a": 2}`, "a='b", "ü", "\n\n",
		`"changed"`, "1e400"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, stdout string) {
		ret, err := reinterpreted(ranWith(stdout), true)
		if err == nil {
			changes, _ := ret.Get("changes")
			if m, ok := changes.(value.Map); !ok || utf8.ValidString(stdout) &&
				!utf8.ValidString(m.String("stdout")) {
				t.Errorf("changes %v", changes)
			}
		}
		v, ok := decodeJSON(stdout)
		var want any
		if werr := json.Unmarshal([]byte(stdout), &want); ok && werr == nil &&
			!reflect.DeepEqual(plainJSON(v), want) {
			t.Errorf("%q is %v, want %v", stdout, plainJSON(v), want)
		}
	})
}

func plainJSON(v any) any {
	switch v := v.(type) {
	case value.Map:
		out := make(map[string]any, len(v))
		for _, p := range v {
			out[p.Key.(string)] = plainJSON(p.Value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plainJSON(v[i])
		}
		return out
	case int64:
		return float64(v)
	}
	return v
}
