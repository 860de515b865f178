package yaml11

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"clustermaster/value"
)

// The files of testdata are made from the real Salt by testdata/vectors.py.

func rows(t *testing.T, name string) [][]json.RawMessage {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var list [][]json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	if len(list) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return list
}

func text(t *testing.T, b json.RawMessage) string {
	t.Helper()
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// failure is a vector whose result is an error of the loader.
type failure struct{}

// value decodes what enc in vectors.py wrote.
func valueOf(t *testing.T, b json.RawMessage) any {
	t.Helper()
	switch b[0] {
	case 'n':
		return nil
	case 't':
		return true
	case 'f':
		return false
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatal(err)
		}
		out := make([]any, len(list))
		for i := range list {
			out[i] = valueOf(t, list[i])
		}
		return out
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	for kind, raw := range o {
		switch kind {
		case "s":
			return text(t, raw)
		case "i":
			n, ok := new(big.Int).SetString(text(t, raw), 10)
			if !ok {
				t.Fatalf("bad integer %s", raw)
			}
			return integer(n)
		case "f":
			f, err := strconv.ParseFloat(text(t, raw), 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		case "b":
			d, err := base64.StdEncoding.DecodeString(text(t, raw))
			if err != nil {
				t.Fatal(err)
			}
			return d
		case "set":
			return value.Set(valueOf(t, raw).([]any))
		case "e":
			return failure{}
		case "m":
			m := value.Map{}
			for _, p := range valueOf(t, raw).([]any) {
				m = append(m, value.Pair{Key: p.([]any)[0], Value: p.([]any)[1]})
			}
			return m
		}
	}
	t.Fatalf("unknown value %s", b)
	return nil
}

// same compares values; NaN equals itself, 1 and 1.0 differ.
func same(a, b any) bool {
	switch x := a.(type) {
	case float64:
		y, ok := b.(float64)
		return ok && (math.Float64bits(x) == math.Float64bits(y) || math.IsNaN(x) && math.IsNaN(y))
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !same(x[i], y[i]) {
				return false
			}
		}
		return true
	case value.Map:
		y, ok := b.(value.Map)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !same(x[i].Key, y[i].Key) || !same(x[i].Value, y[i].Value) {
				return false
			}
		}
		return true
	case *big.Int:
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	}
	return reflect.DeepEqual(a, b)
}

func show(v any) string { return fmt.Sprintf("%T %#v", v, v) }

func TestParseArgIsSalts(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t, "args.json") {
		in, want := text(t, r[0]), valueOf(t, r[1])
		if got := ParseArg(in); !same(got, want) {
			t.Errorf("ParseArg(%q)\n got %s\nwant %s", in, show(got), show(want))
		}
	}
}

func TestParseArgsIsSalts(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t, "kwargs.json") {
		var words []string
		if err := json.Unmarshal(r[0], &words); err != nil {
			t.Fatal(err)
		}
		want := valueOf(t, r[1])
		args, kwargs := ParseArgs(words)
		if got := Condition(args, kwargs); !same(any(got), want) {
			t.Errorf("ParseArgs(%q)\n got %s\nwant %s", words, show(got), show(want))
		}
	}
}

func TestLoadIsSalts(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t, "load.json") {
		in, want := text(t, r[0]), valueOf(t, r[1])
		got, err := Load([]byte(in))
		if err != nil {
			got = failure{}
		}
		if s, ok := want.(value.Set); ok {
			want = s
		}
		if !same(got, want) {
			t.Errorf("Load(%q)\n got %s (%v)\nwant %s", in, show(got), err, show(want))
		}
	}
}

func TestDumpIsSalts(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t, "dump.json") {
		v, want := valueOf(t, r[0]), text(t, r[1])
		if got := string(Dump(v)); got != want {
			t.Errorf("Dump(%s)\n got %q\nwant %q", r[0], got, want)
		}
	}
}

func TestDumpStylesAreSalts(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t, "styles.json") {
		v, flow, wide := valueOf(t, r[0]), text(t, r[1]), text(t, r[2])
		if got := string(DumpStyle(v, Style{Flow: true})); got != flow {
			t.Errorf("flow of %s\n got %q\nwant %q", r[0], got, flow)
		}
		if got := string(DumpStyle(v, Style{Indent: 4})); got != wide {
			t.Errorf("indent 4 of %s\n got %q\nwant %q", r[0], got, wide)
		}
	}
}
