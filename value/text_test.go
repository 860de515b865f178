package value

import (
	"encoding/json"
	"math"
	"testing"
	"unicode/utf8"
)

func TestFloat(t *testing.T) {
	t.Parallel()
	tests := map[float64]string{
		0: "0.0", math.Copysign(0, -1): "-0.0", 1: "1.0", 1.5: "1.5", 0.1: "0.1",
		1e15: "1000000000000000.0", 1e16: "1e+16", 1.5e16: "1.5e+16",
		1e-4: "0.0001", 1e-5: "1e-05", 1e22: "1e+22", 1e100: "1e+100",
		123456789.123: "123456789.123", 5e-324: "5e-324", math.Inf(1): "inf", math.Inf(-1): "-inf",
	}
	for f, want := range tests {
		if got := Float(f); got != want {
			t.Errorf("Float(%g) = %s, want %s", f, got, want)
		}
	}
	if got := Float(math.NaN()); got != "nan" {
		t.Errorf("Float(NaN) = %s", got)
	}
}

func TestRepr(t *testing.T) {
	t.Parallel()
	tests := []struct {
		v    any
		want string
	}{
		{nil, "None"}, {true, "True"}, {false, "False"}, {int64(-5), "-5"},
		{uint64(math.MaxUint64), "18446744073709551615"}, {7, "7"},
		{"a", "'a'"}, {"it's", `"it's"`}, {`both ' and "`, `'both \' and "'`},
		{"tab\tnl\n\\", `'tab\tnl\n\\'`},
		{"\x00\x7f\u00a0\u2028\U000e0001", `'\x00\x7f\xa0\u2028\U000e0001'`},
		{"é日😀", "'é日😀'"}, {"\xff", `'\xff'`}, {[]byte("a'\xff\n"), `b"a'\xff\n"`},
		{[]byte{}, "b''"},
		{[]any{int64(1), "x", []any{}}, "[1, 'x', []]"}, {[]string{"a"}, "['a']"},
		{Map{{Key: "k", Value: nil}, {Key: int64(1), Value: 1.0}}, "{'k': None, 1: 1.0}"},
		{map[string]any{"b": 1, "a": 2}, "{'a': 2, 'b': 1}"},
	}
	for _, tt := range tests {
		if got := Repr(tt.v); got != tt.want {
			t.Errorf("Repr(%#v) = %s, want %s", tt.v, got, tt.want)
		}
	}
	if Str("x") != "x" || Str(nil) != "None" {
		t.Error("Str quotes texts or loses None")
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	v := Map{{Key: "b", Value: []any{int64(1), Map{}, []any{}}},
		{Key: "a", Value: "é\u2028\"\\\x01"}, {Key: int64(1), Value: 1e16}}
	tests := []struct {
		style JSONStyle
		v     any
		want  string
	}{
		{JSONStyle{Indent: -1}, v,
			"{\"b\": [1, {}, []], \"a\": \"é\u2028\\\"\\\\\\u0001\", \"1\": 1e+16}"},
		{JSONStyle{Indent: 1}, Map{{Key: "b", Value: []any{int64(1)}}}, "{\n \"b\": [\n  1\n ]\n}"},
		{JSONStyle{Indent: -1, SortKeys: true}, v[:2],
			"{\"a\": \"é\u2028\\\"\\\\\\u0001\", \"b\": [1, {}, []]}"},
		{JSONStyle{Indent: -1}, Map{{Key: true, Value: math.Inf(1)}, {Key: nil, Value: math.NaN()}},
			`{"true": Infinity, "null": NaN}`},
		{JSONStyle{Indent: -1}, []byte("\xff"), `"b'\\xff'"`},
	}
	for _, tt := range tests {
		got, err := JSON(tt.v, tt.style)
		if err != nil || got != tt.want {
			t.Errorf("JSON = %s, %v; want %s", got, err, tt.want)
		}
	}
	for _, bad := range []any{Map{{Key: []byte("x"), Value: 1}}} {
		if got, err := JSON(bad, JSONStyle{Indent: -1}); err == nil {
			t.Errorf("JSON(%v) = %s, want an error", bad, got)
		}
	}
	if _, err := JSON(v, JSONStyle{Indent: -1, SortKeys: true}); err == nil {
		t.Error("keys of two types were sorted")
	}
}

// FuzzJSON: what json.dumps would write reads back as the text it was.
func FuzzJSON(f *testing.F) {
	f.Add("a\u2028\x00\"")
	f.Fuzz(func(t *testing.T, s string) {
		Repr(s)
		text, err := JSON(Map{{Key: s, Value: []any{s}}}, JSONStyle{Indent: 2})
		if err != nil {
			t.Fatal(err)
		}
		var back map[string][]string
		if err := json.Unmarshal([]byte(text), &back); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if utf8.ValidString(s) && (len(back[s]) != 1 || back[s][0] != s) {
			t.Errorf("%q came back as %q", s, back)
		}
	})
}
