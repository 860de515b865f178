package value_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// vectors are what wire/testdata/vectors.py got out of the real library.
var vectors = func() (v struct {
	Pack    map[string]string
	PackNew map[string]string `json:"pack new"`
}) {
	text, err := os.ReadFile("../wire/testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		panic(err)
	}
	return v
}()

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// packValues are the Go forms of the values in testdata/vectors.py.
func packValues() map[string]any {
	integers := func(n int) []any {
		out := make([]any, n)
		for i := range out {
			out[i] = i
		}
		return out
	}
	map16, map65536 := value.Map{}, value.Map{}
	for i := range 16 {
		map16 = append(map16, value.Pair{Key: strconv.Itoa(i), Value: i})
	}
	for i := range 65536 {
		map65536 = append(map65536, value.Pair{Key: i, Value: 0})
	}
	zeros := make([]any, 65536)
	for i := range zeros {
		zeros[i] = 0
	}
	date := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.FixedZone("", 3600))
	two := func(exp uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), exp) }
	return map[string]any{
		"nil": nil, "true": true, "false": false,
		"text 0": "", "text 31": strings.Repeat("a", 31), "text 32": strings.Repeat("a", 32),
		"text 255": strings.Repeat("b", 255), "text 256": strings.Repeat("b", 256),
		"text 65535": strings.Repeat("c", 65535), "text 65536": strings.Repeat("c", 65536),
		"text utf-8": "Gr\u00fc\u00dfe \U0001f9c2",
		"bytes":      []byte{0xff, 0, 0xfe}, "bytes 32": bytes.Repeat([]byte{0xff}, 32),
		"bytes 256": bytes.Repeat([]byte{0xff}, 256),
		"list":      []any{1, "two", nil}, "tuple": []any{1, 2}, "list 15": integers(15),
		"list 16": integers(16), "list 65536": zeros,
		"set of one": []any{7},
		"map": value.Map{{Key: "b", Value: 1},
			{Key: "a", Value: value.Map{{Key: "z", Value: []any{}},
				{Key: "y", Value: value.Map{}}}}},
		"map 16": map16, "map 65536": map65536,
		"map odd keys": value.Map{{Key: 2, Value: "int"}, {Key: nil, Value: "nil"},
			{Key: true, Value: "bool"}, {Key: -3, Value: "neg"},
			{Key: []byte{0xff}, Value: "bytes"}},
		"ordered map": value.Map{{Key: "z", Value: 1}, {Key: "a", Value: 2}},
		"float":       1.5, "float inf": math.Inf(1),
		"int 0": 0, "int 127": int8(127), "int 128": uint8(128), "int 255": int16(255),
		"int 256":   uint16(256),
		"int 65535": int32(65535), "int 65536": uint32(65536), "int 2^32-1": int64(1<<32 - 1),
		"int 2^32": uint(1 << 32),
		"int 2^63": uint64(1 << 63), "int 2^64-1": uint64(math.MaxUint64), "int 2^64": two(64),
		"int -1": -1, "int -32": -32, "int -33": -33, "int -128": -128, "int -129": -129,
		"int -32769":  -32769,
		"int -2^31-1": int64(math.MinInt32) - 1, "int -2^63": int64(math.MinInt64),
		"int -2^63-1": new(big.Int).Sub(new(big.Int).Neg(two(63)), big.NewInt(1)),
		"datetime":    value.Time{Time: date}, "date": time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		"constant":        value.Const{Name: "NOT_SET"},
		"constant text":   value.Const{Name: "C", Value: strings.Repeat("x", 40)},
		"constant bytes":  value.Const{Name: "B", Value: []byte("abc")},
		"constant fixext": value.Const{Name: "A"},
		"return": value.Map{
			{Key: "cmd", Value: "_return"}, {Key: "id", Value: "m1"},
			{Key: "jid", Value: "20260101000000000000"}, {Key: "return", Value: true},
			{Key: "retcode", Value: 0}, {Key: "success", Value: true},
			{Key: "fun", Value: "test.ping"},
		},
	}
}

func short(b []byte) string {
	if len(b) < 2000 {
		return hex.EncodeToString(b)
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Conformance 10: each row of 2.1 equals the library's bytes, and reads back.
func TestPackEqualsLibrary(t *testing.T) {
	values := packValues()
	for _, spec := range []struct {
		name string
		want map[string]string
		pack func(any) ([]byte, error)
	}{{"old", vectors.Pack, value.Pack}, {"new", vectors.PackNew, value.PackNew}} {
		if len(spec.want) != len(values) {
			t.Errorf("%s specification: %d vectors for %d values", spec.name, len(spec.want),
				len(values))
		}
		for name, want := range spec.want {
			v, ok := values[name]
			if !ok {
				t.Errorf("%s: no Go value", name)
				continue
			}
			got, err := spec.pack(v)
			if err != nil {
				t.Errorf("%s, %s: %v", spec.name, name, err)
				continue
			}
			if short(got) != want {
				t.Errorf("%s, %s: got %s, want %s", spec.name, name, short(got), want)
			}
			back, err := value.Unpack(got)
			if err != nil {
				t.Errorf("%s, %s: unpack: %v", spec.name, name, err)
				continue
			}
			again, err := value.Pack(back)
			if err != nil || short(again) != vectors.Pack[name] {
				t.Errorf("%s, %s: packed again %s, %v", spec.name, name, short(again), err)
			}
		}
	}
}

func TestPackKinds(t *testing.T) {
	tests := []struct {
		name string
		v    any
		want string
	}{
		{"raw", value.Raw{0xc3}, "c3"},
		{"empty raw", value.Raw(nil), "c0"},
		{"strings", []string{"a", "b"}, "92a161a162"},
		{"sorted", map[string]any{"b": 1, "a": nil}, "82a161c0a16201"},
		{"sorted text", map[string]string{"b": "x", "a": "y"}, "82a161a179a162a178"},
		{"maps", []value.Map{{{Key: "a", Value: 1}}}, "9181a16101"},
		{"raws", []value.Raw{{1}, nil}, "9201c0"},
		{"raw map", value.RawMap{{Key: "a", Value: value.Raw{1}}, {Key: "b"}}, "82a16101a162c0"},
		{"float32", float32(1.5), "cb3ff8000000000000"},
		{"big", big.NewInt(-1), "ff"},
		{"no big", (*big.Int)(nil), "c0"},
		{"big 2^63", new(big.Int).Lsh(big.NewInt(1), 63), "cf8000000000000000"},
	}
	for _, tt := range tests {
		got, err := value.Pack(tt.v)
		if err != nil || hex.EncodeToString(got) != tt.want {
			t.Errorf("%s: got %x, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

func TestPackRefuses(t *testing.T) {
	deep := any(nil)
	for range value.MaxDepth + 1 {
		deep = []any{deep}
	}
	loop := []any{nil}
	loop[0] = loop
	for name, v := range map[string]any{
		"struct": struct{}{}, "channel": make(chan int),
		"map key map":  value.Map{{Key: value.Map{}, Value: 1}},
		"map key list": value.Map{{Key: []any{}, Value: 1}},
		"deep":         deep, "loop": loop, "inner": []any{func() {}},
		"year 10000":   value.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"sorted inner": map[string]any{"a": struct{}{}},
		"const inner":  value.Const{"a", struct{}{}},
		"key struct":   value.Map{{Key: struct{}{}, Value: 1}},
	} {
		if b, err := value.Pack(v); !errors.Is(err, value.ErrUnpackable) || b != nil {
			t.Errorf("%s: got %x, %v", name, b, err)
		}
	}
}

// Conformance 11 and 12, and the section 2.2.
func TestUnpack(t *testing.T) {
	tests := []struct {
		name, in string
		want     any
	}{
		{"raw text", "a161", "a"},
		{"bin is text", "c40161", "a"},
		{"bin 16", "c5000161", "a"},
		{"bin 32", "c60000000161", "a"},
		{"str8", "d90161", "a"},
		{"raw bytes", "a1ff", []byte{0xff}},
		{"bin bytes", "c401ff", []byte{0xff}},
		{"float32", "ca3fc00000", 1.5},
		{"uint8", "ccff", int64(255)},
		{"uint64", "cfffffffffffffffff", uint64(math.MaxUint64)},
		{"uint64 small", "cf0000000000000001", int64(1)},
		{"int8", "d0ff", int64(-1)},
		{"int16", "d1ff00", int64(-256)},
		{"int32", "d2ffffffff", int64(-1)},
		{"int64", "d3ffffffffffffffff", int64(-1)},
		{"datetime", "c7184e" + hex.EncodeToString([]byte("20260102T03:04:05.678901")),
			value.Time{time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)}},
		{"constant", "c70a4f92a7" + hex.EncodeToString([]byte("NOT_SET")) + "c0",
			value.Const{Name: "NOT_SET"}},
		{"other ext", "d40561", "a"},
		{"other ext bytes", "d505ffff", []byte{0xff, 0xff}},
		{"timestamp ext", "d6ff00000001", "\x00\x00\x00\x01"},
		{"int and nil keys", "8301a161c0a162c2a163",
			value.Map{{Key: int64(1), Value: "a"}, {Key: nil, Value: "b"},
				{Key: false, Value: "c"}}},
		{"array 16", "dc000101", []any{int64(1)}},
		{"array 32", "dd0000000101", []any{int64(1)}},
		{"map 16", "de00010102", value.Map{{Key: int64(1), Value: int64(2)}}},
		{"map 32", "df000000010102", value.Map{{Key: int64(1), Value: int64(2)}}},
	}
	for _, tt := range tests {
		got, err := value.Unpack(unhex(t, tt.in))
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %#v, %v, want %#v", tt.name, got, err, tt.want)
		}
	}
}

// Conformance 14, and what costs memory.
func TestUnpackRefuses(t *testing.T) {
	deep := strings.Repeat("91", value.MaxDepth+1) + "c0"
	for name, in := range map[string]string{
		"empty": "", "trailing": "c0c0", "unused": "c1", "array key": "8190c0", "map key": "8180c0",
		"array16 key": "81dc0000c0",
		"cut head":    "da00", "cut text": "a261", "cut array": "9101"[:2], "cut map": "8101",
		"cut ext": "c70305", "cut fixext": "d8",
		"huge array": "ddffffffff", "huge map": "dfffffffff", "huge raw": "dbffffffff",
		"huge ext": "c9ffffffff05",
		"deep":     deep, "bad time": "c7184e" + strings.Repeat("78", 24), "short time": "d44e78",
		"bad constant":      "d44fc0",
		"constant of three": "d64f93a00101", "constant name int": "d54f" + "9201",
		"constant bad text": "d64f92a1ffc0",
		// nested claims: each array says that it holds all the rest
		"claims": "dd00000020" + "dd0000001b" + strings.Repeat("c0", 31),
	} {
		b := unhex(t, in)
		if v, err := value.Unpack(b); !errors.Is(err, value.ErrMalformed) || v != nil {
			t.Errorf("%s: got %#v, %v", name, v, err)
		}
		if _, err := value.Weigh(b); err == nil {
			t.Errorf("%s: Weigh accepts it", name)
		}
	}
	if _, err := value.Unpack(unhex(t, strings.Repeat("91", value.MaxDepth)+"c0")); err != nil {
		t.Errorf("depth %d: %v", value.MaxDepth, err)
	}
	if _, err := value.UnpackMap([]byte{0x90}); !errors.Is(err, value.ErrMalformed) {
		t.Errorf("map of array: %v", err)
	}
}

// A small input must not make the decoder allocate much, whatever it claims.
func TestUnpackMemory(t *testing.T) {
	// 512 nested arrays, each of which claims all the bytes that are left.
	n := 64 << 10
	b := make([]byte, 0, n)
	for range value.MaxDepth - 2 {
		left := n - len(b) - 5
		b = append(b, 0xdd, byte(left>>24), byte(left>>16), byte(left>>8), byte(left))
	}
	for len(b) < n {
		b = append(b, 0xc0)
	}
	result := testing.Benchmark(func(tb *testing.B) {
		for tb.Loop() {
			if _, err := value.Unpack(b); err == nil {
				tb.Fatal("accepted")
			}
		}
	})
	if got, limit := result.AllocedBytesPerOp(), int64(40*n); got > limit {
		t.Errorf("unpacking %d bytes allocates %d, more than %d", n, got, limit)
	}
}

func TestMap(t *testing.T) {
	m := value.Map{{Key: "a", Value: 1}, {Key: "b", Value: "x"}, {Key: 3, Value: "three"},
		{Key: "a", Value: 2}, {Key: "c", Value: []byte{0xff}}}
	if v, ok := m.Get("a"); !ok || v != 2 {
		t.Errorf("the last of two counts: got %v, %v", v, ok)
	}
	if v, ok := m.Get("z"); ok || v != nil {
		t.Errorf("absent: got %v, %v", v, ok)
	}
	if m.String("b") != "x" || m.String("a") != "" || m.String("z") != "" {
		t.Errorf("text: got %q, %q, %q", m.String("b"), m.String("a"), m.String("z"))
	}
	if !bytes.Equal(m.Bytes("c"), []byte{0xff}) || string(m.Bytes("b")) != "x" ||
		m.Bytes("a") != nil {
		t.Errorf("bytes: got %x, %x, %x", m.Bytes("c"), m.Bytes("b"), m.Bytes("a"))
	}
	if got := m.Without("a", "c"); !reflect.DeepEqual(got,
		value.Map{{Key: "b", Value: "x"}, {Key: 3, Value: "three"}}) {
		t.Errorf("without: got %v", got)
	}
	m = m.Set("b", "y").Set("d", 4)
	if m.String("b") != "y" || len(m) != 6 || m[5] != (value.Pair{Key: "d", Value: 4}) {
		t.Errorf("set: got %v", m)
	}
}

func TestRawMap(t *testing.T) {
	packed, err := value.Pack(value.Map{{Key: "a", Value: 1}, {Key: 7, Value: "seven"},
		{Key: "b", Value: value.Map{{Key: "x", Value: nil}}}, {Key: "c", Value: "text"},
		{Key: "a", Value: -5}, {Key: []byte{0xff}, Value: true}, {Key: "n", Value: nil}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := value.UnpackRawMap(packed)
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := m.Int("a"); !ok || n != -5 {
		t.Errorf("the last of two counts: got %v, %v", n, ok)
	}
	if _, ok := m.Int("c"); ok {
		t.Error("text is an integer")
	}
	if m.String("c") != "text" || m.String("b") != "" || string(m.Bytes("c")) != "text" {
		t.Errorf("text: got %q, %q", m.String("c"), m.String("b"))
	}
	if _, ok := m.Get("\x07"); ok {
		t.Error("an integer key is found as text")
	}
	if !m[1].Other() || m[0].Other() {
		t.Error("other keys are not told apart")
	}
	if m, err := value.UnpackRawMap(unhex(t, "82a2696401c70205696402")); err != nil || m[1].Other() {
		t.Errorf("an extension as key: %v, %v", m, err)
	} else if n, _ := m.Int("id"); n != 2 {
		t.Errorf("an extension as key: the first one counts, %d", n)
	}
	b, _ := m.Get("b")
	if !b.IsMap() || b.IsNil() {
		t.Errorf("b: %x", b)
	}
	if n, _ := m.Get("n"); !n.IsNil() {
		t.Errorf("n: %x", n)
	}
	if v, ok := m[5].Value.Bool(); !v || !ok {
		t.Errorf("bool: %v, %v", v, ok)
	}
	again, err := m.Pack()
	if err != nil || !bytes.Equal(again, packed) {
		t.Errorf("packed again: got %x, %v, want %x", again, err, packed)
	}
	full, err := m.Map()
	want, _ := value.UnpackMap(packed)
	if err != nil || !reflect.DeepEqual(full, want) {
		t.Errorf("map: got %v, %v, want %v", full, err, want)
	}
	shorter := m.Without("a", "b").Append("z", value.Raw{1})
	if len(shorter) != 5 || shorter[4].Key != "z" || len(m) != 7 {
		t.Errorf("without and append: %v", shorter)
	}
	for _, bad := range []string{"", "90", "c0", "8101", "81a161", "8101c0c0", "81a161c1"} {
		if m, err := value.UnpackRawMap(unhex(t, bad)); !errors.Is(err, value.ErrMalformed) ||
			m != nil {
			t.Errorf("%s: got %v, %v", bad, m, err)
		}
	}
}
