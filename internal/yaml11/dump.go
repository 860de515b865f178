package yaml11

import (
	"encoding/base64"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Style chooses the shape of a dump. The zero Style is the one of
// safe_dump(default_flow_style=False): blocks, two spaces, sorted keys.
type Style struct {
	Indent   int  // spaces per level, 2 to 9; anything else is 2
	Flow     bool // {a: 1} and [1, 2] instead of blocks
	Leaves   bool // the same for lists and maps of scalars only
	ASCII    bool // escape all other characters
	Unsorted bool // keep the order of maps (Salt's OrderedDict)
}

// Dump prints v as Salt's --out=yaml does. Beside the values that Load gives it
// takes every Go integer, []string, map[string]any, and slices of any struct of
// two fields Key and Value as mappings in order. Another type prints NULL, as in
// Salt. Keys are sorted as Python sorts them: not at all if two can't be
// compared.
func Dump(v any) []byte { return DumpStyle(v, Style{}) }

// DumpStyle is Dump in another shape.
func DumpStyle(v any, s Style) []byte {
	if s.Indent < 2 || s.Indent > 9 {
		s.Indent = 2
	}
	e := &emitter{step: s.Indent, indent: -1, whitespace: true, indention: true, ascii: s.ASCII}
	e.node(represent(v, s), context{})
	e.finish()
	return e.out
}

// node kinds of the representation tree.
type shape uint8

const (
	scalarShape shape = iota
	listShape
	mapShape
)

type tree struct {
	shape   shape
	text    string
	plainOK bool   // the plain text reads back as the same type
	tag     string // written out when not ""
	literal bool
	flow    bool
	items   []*tree // list items, or key, value, key, value
}

func represent(v any, s Style) *tree {
	switch v := v.(type) {
	case nil:
		return plain("null")
	case bool:
		return plain(strconv.FormatBool(v))
	case string:
		return &tree{text: v, plainOK: resolve(strings.TrimSuffix(v, "\n")) == tagStr}
	case float64:
		return plain(formatFloat(v))
	case float32:
		return plain(formatFloat(float64(v)))
	case *big.Int:
		return plain(v.String())
	case []byte:
		if v == nil {
			v = []byte{}
		}
		return &tree{text: encodeBase64(v), tag: "!!binary", literal: true}
	case Map:
		return mapTree(v, s)
	case Set:
		m := make(Map, len(v))
		for i := range v {
			m[i].Key = v[i]
		}
		t := mapTree(m, s)
		t.tag = "!!set"
		return t
	}
	return reflected(reflect.ValueOf(v), s)
}

func reflected(v reflect.Value, s Style) *tree {
	switch v.Kind() {
	case reflect.Bool:
		return plain(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return plain(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return plain(strconv.FormatUint(v.Uint(), 10))
	case reflect.String:
		return represent(v.String(), s)
	case reflect.Map:
		m := make(Map, 0, v.Len())
		for it := v.MapRange(); it.Next(); {
			m = append(m, Pair{it.Key().Interface(), it.Value().Interface()})
		}
		return mapTree(m, s)
	case reflect.Slice:
		if isPairs(v.Type()) {
			m := make(Map, v.Len())
			for i := range m {
				m[i] = Pair{v.Index(i).FieldByName("Key").Interface(), v.Index(i).FieldByName("Value").Interface()}
			}
			return mapTree(m, s)
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			break // packed bytes of somebody else: no value
		}
		t := &tree{shape: listShape, flow: s.Flow || v.Len() == 0}
		for i := range v.Len() {
			t.items = append(t.items, represent(v.Index(i).Interface(), s))
		}
		t.flow = t.flow || s.Leaves && t.ofScalars()
		return t
	}
	return plain("NULL")
}

func isPairs(t reflect.Type) bool {
	if e := t.Elem(); e.Kind() == reflect.Struct && e.NumField() == 2 {
		k, hasKey := e.FieldByName("Key")
		v, hasValue := e.FieldByName("Value")
		return hasKey && hasValue && k.IsExported() && v.IsExported()
	}
	return false
}

func mapTree(m Map, s Style) *tree {
	t := &tree{shape: mapShape, flow: s.Flow || len(m) == 0}
	if !s.Unsorted {
		m = sortKeys(m)
	}
	for _, p := range m {
		t.items = append(t.items, represent(p.Key, s), represent(p.Value, s))
	}
	t.flow = t.flow || s.Leaves && t.ofScalars()
	return t
}

func (t *tree) ofScalars() bool {
	return !slices.ContainsFunc(t.items, func(item *tree) bool { return item.shape != scalarShape || item.literal })
}

// sortKeys orders by key where all keys are of one comparable kind.
func sortKeys(m Map) Map {
	sorted := slices.Clone(m)
	comparable := true
	slices.SortStableFunc(sorted, func(a, b Pair) int {
		c, ok := compareKeys(a.Key, b.Key)
		comparable = comparable && ok
		return c
	})
	if !comparable {
		return m
	}
	return sorted
}

func compareKeys(a, b any) (int, bool) {
	if x, ok := a.(string); ok {
		y, ok := b.(string)
		return strings.Compare(x, y), ok
	}
	x, okX := number(a)
	y, okY := number(b)
	if !okX || !okY {
		return 0, false
	}
	return x.Cmp(y), true
}

// number is a key as an exact number; bools count, as in Python.
func number(v any) (*big.Float, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewFloat(1), true
		}
		return new(big.Float), true
	case *big.Int:
		return new(big.Float).SetInt(v), true
	case nil:
		return nil, false
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return new(big.Float).SetInt64(r.Int()), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return new(big.Float).SetUint64(r.Uint()), true
	case reflect.Float32, reflect.Float64:
		if math.IsNaN(r.Float()) {
			return nil, false
		}
		return big.NewFloat(r.Float()), true
	}
	return nil, false
}

func plain(s string) *tree { return &tree{text: s, plainOK: true} }

// formatFloat is Python's repr with the dot that YAML 1.1 asks for.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return ".nan"
	case math.IsInf(f, 1):
		return ".inf"
	case math.IsInf(f, -1):
		return "-.inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		s := strconv.FormatFloat(f, 'e', -1, 64)
		if !strings.Contains(s, ".") {
			s = strings.Replace(s, "e", ".0e", 1)
		}
		return s
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// encodeBase64 breaks lines after 76 characters and ends each.
func encodeBase64(b []byte) string {
	s := base64.StdEncoding.EncodeToString(b)
	var out strings.Builder
	for len(s) > 0 {
		n := min(76, len(s))
		out.WriteString(s[:n])
		out.WriteByte('\n')
		s = s[n:]
	}
	return out.String()
}
