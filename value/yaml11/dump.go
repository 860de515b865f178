package yaml11

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"

	"clustermaster/value"
)

// Style chooses the shape of a dump. The zero Style is the one of
// safe_dump(default_flow_style=False): blocks, two spaces, sorted keys.
type Style struct {
	Indent   int  // spaces per level, 2 to 9; anything else is 2
	Flow     bool // {a: 1} and [1, 2] instead of blocks
	Leaves   bool // flow style for lists and maps of scalars only
	ASCII    bool // escape all other characters
	Unsorted bool // keep the order of maps (Salt's OrderedDict)
}

// Dump prints v as Salt's --out=yaml does. Besides the values of Load it takes every Go integer,
// []string, map[string]any and value.Time. Another type prints NULL, as in Salt. Keys are sorted as
// Python sorts them, or not at all if two can't be compared.
func Dump(v any) []byte { return DumpStyle(v, Style{}) }

// DumpStyle is Dump in another style.
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
	tag     string // written unless ""
	literal bool
	time    bool // quoted in flow style, with the tag "!"
	flow    bool
	items   []*tree // list items, or key, value, key, value
}

func represent(v any, s Style) *tree {
	switch v := value.Plain(v).(type) {
	case nil:
		return plain("null")
	case bool:
		return plain(strconv.FormatBool(v))
	case string:
		return &tree{text: v, plainOK: resolve(strings.TrimSuffix(v, "\n")) == tagStr}
	case float64:
		return plain(formatFloat(v))
	case value.Time:
		return &tree{text: value.Str(v), plainOK: true, time: true}
	case []byte:
		if v == nil {
			v = []byte{}
		}
		return &tree{text: encodeBase64(v), tag: "!!binary", literal: true}
	case value.Map:
		return mapTree(v, s)
	case value.Set:
		m := make(value.Map, len(v))
		for i := range v {
			m[i].Key = v[i]
		}
		t := mapTree(m, s)
		t.tag = "!!set"
		return t
	case []any:
		t := &tree{shape: listShape, flow: s.Flow || len(v) == 0}
		for _, e := range v {
			t.items = append(t.items, represent(e, s))
		}
		t.flow = t.flow || s.Leaves && t.ofScalars()
		return t
	default:
		if digits, ok := value.Int(v); ok {
			return plain(digits)
		}
	}
	return plain("NULL")
}

func mapTree(m value.Map, s Style) *tree {
	t := &tree{shape: mapShape, flow: s.Flow || len(m) == 0}
	if !s.Unsorted {
		m, _ = value.Sorted(m)
	}
	for _, p := range m {
		t.items = append(t.items, represent(p.Key, s), represent(p.Value, s))
	}
	t.flow = t.flow || s.Leaves && t.ofScalars()
	return t
}

func (t *tree) ofScalars() bool {
	return !slices.ContainsFunc(t.items, func(item *tree) bool {
		return item.shape != scalarShape ||
			item.literal
	})
}

func plain(s string) *tree { return &tree{text: s, plainOK: true} }

// formatFloat is Python's repr with the dot that YAML 1.1 requires.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return ".nan"
	case math.IsInf(f, 1):
		return ".inf"
	case math.IsInf(f, -1):
		return "-.inf"
	}
	s := value.Float(f)
	if !strings.Contains(s, ".") {
		s = strings.Replace(s, "e", ".0e", 1)
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
