package value

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
)

// ErrJSON is returned where Python's json.dumps raises a TypeError: for a key that is not a scalar,
// or for keys of several types that should be sorted.
var ErrJSON = errors.New("value has no JSON form")

// JSONStyle are the arguments of json.dumps that Salt uses. ensure_ascii is always off.
type JSONStyle struct {
	Indent   int  // blanks for each level; negative: all on one line
	SortKeys bool // by text
	Base64   bool // of bytes; else their repr
}

// JSON is json.dumps(v, ensure_ascii=False, default=repr) in the given style. The error is ErrJSON,
// wrapped.
func JSON(v any, style JSONStyle) (string, error) {
	var b strings.Builder
	if err := appendJSON(&b, v, style, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

func appendJSON(b *strings.Builder, v any, style JSONStyle, depth int) error {
	switch x := Plain(v).(type) {
	case nil:
		b.WriteString("null")
	case bool:
		if x {
			b.WriteString("true")
		} else {
			b.WriteString("false")
		}
	case string:
		appendJSONString(b, x)
	case float64:
		b.WriteString(jsonFloat(x))
	case []any:
		if len(x) == 0 {
			b.WriteString("[]")
			return nil
		}
		b.WriteByte('[')
		for i, e := range x {
			separate(b, style, depth+1, i)
			if err := appendJSON(b, e, style, depth+1); err != nil {
				return err
			}
		}
		closeLevel(b, style, depth, ']')
	case Map:
		return appendJSONMap(b, x, style, depth)
	case []byte:
		if style.Base64 {
			appendJSONString(b, base64.StdEncoding.EncodeToString(x))
		} else {
			appendJSONString(b, Repr(x))
		}
	default:
		if s, ok := Int(x); ok {
			b.WriteString(s)
			return nil
		}
		appendJSONString(b, Repr(x))
	}
	return nil
}

func appendJSONMap(b *strings.Builder, m Map, style JSONStyle, depth int) error {
	if len(m) == 0 {
		b.WriteString("{}")
		return nil
	}
	if style.SortKeys {
		sorted, ok := Sorted(m)
		if !ok {
			return fmt.Errorf("sort keys of a map: %w", ErrJSON)
		}
		m = sorted
	}
	b.WriteByte('{')
	for i, p := range m {
		separate(b, style, depth+1, i)
		key, err := jsonKey(p.Key)
		if err != nil {
			return err
		}
		appendJSONString(b, key)
		b.WriteString(": ")
		if err := appendJSON(b, p.Value, style, depth+1); err != nil {
			return err
		}
	}
	closeLevel(b, style, depth, '}')
	return nil
}

func jsonKey(k any) (string, error) {
	switch x := k.(type) {
	case string:
		return x, nil
	case nil:
		return "null", nil
	case bool:
		if x {
			return "true", nil
		}
		return "false", nil
	case float64:
		return jsonFloat(x), nil
	}
	if s, ok := Int(k); ok {
		return s, nil
	}
	return "", fmt.Errorf("write key %s: %w", Repr(k), ErrJSON)
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return Float(f)
}

func separate(b *strings.Builder, style JSONStyle, depth, i int) {
	if style.Indent < 0 {
		if i > 0 {
			b.WriteString(", ")
		}
		return
	}
	if i > 0 {
		b.WriteByte(',')
	}
	b.WriteByte('\n')
	b.WriteString(strings.Repeat(" ", style.Indent*depth))
}

func closeLevel(b *strings.Builder, style JSONStyle, depth int, end byte) {
	if style.Indent >= 0 {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat(" ", style.Indent*depth))
	}
	b.WriteByte(end)
}

func appendJSONString(b *strings.Builder, s string) {
	const hex = "0123456789abcdef"
	b.WriteByte('"')
	for _, r := range s { // an invalid UTF-8 byte becomes the replacement character
		switch r {
		case '"':
			b.WriteString(`\"`)
		case '\\':
			b.WriteString(`\\`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\f':
			b.WriteString(`\f`)
		case '\b':
			b.WriteString(`\b`)
		default:
			if r < 0x20 {
				b.WriteString(`\u00`)
				b.WriteByte(hex[r>>4])
				b.WriteByte(hex[r&15])
			} else {
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
}
