package value

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Repr is Python's repr(v) of a value.
func Repr(v any) string {
	var b strings.Builder
	appendRepr(&b, v)
	return b.String()
}

// Str is Python's str(v): text as it is, a Time as date and time of day, everything else as Repr.
func Str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case Time:
		return clock(v.Time)
	case time.Time:
		return clock(v)
	}
	return Repr(v)
}

func clock(t time.Time) string {
	if t.Nanosecond()/1000 == 0 {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("2006-01-02 15:04:05.000000")
}

// reprTime is repr of a datetime: a second of 0 without microseconds is left out.
func reprTime(t time.Time) string {
	parts := []int{t.Year(), int(t.Month()), t.Day(), t.Hour(), t.Minute(), t.Second(),
		t.Nanosecond() / 1000}
	for len(parts) > 5 && parts[len(parts)-1] == 0 {
		parts = parts[:len(parts)-1]
	}
	return "datetime.datetime(" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(parts)),
		", "), "[]") + ")"
}

// other writes values that have no literal in Python.
func other(v any) string {
	switch x := v.(type) {
	case Time:
		return reprTime(x.Time)
	case time.Time:
		return reprTime(x)
	case Const:
		if x.Value == nil {
			return "<Constant." + x.Name + ">"
		}
		return "<Constant." + x.Name + " value=" + Str(x.Value) + ">"
	case fmt.Stringer:
		return x.String()
	}
	return fmt.Sprint(v)
}

// Float is Python's repr of a float: the shortest digits that read back as f, with an exponent
// below 1e-4 and from 1e16 on.
func Float(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	e := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return e // Go and Python both write at least two digits of exponent, and its sign
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Int reports v as decimal digits if it is an integer of any Go type.
func Int(v any) (string, bool) {
	switch n := v.(type) {
	case int:
		return strconv.Itoa(n), true
	case int64:
		return strconv.FormatInt(n, 10), true
	case int32:
		return strconv.FormatInt(int64(n), 10), true
	case int16:
		return strconv.FormatInt(int64(n), 10), true
	case int8:
		return strconv.FormatInt(int64(n), 10), true
	case uint64:
		return strconv.FormatUint(n, 10), true
	case uint:
		return strconv.FormatUint(uint64(n), 10), true
	case uint32:
		return strconv.FormatUint(uint64(n), 10), true
	case uint16:
		return strconv.FormatUint(uint64(n), 10), true
	case uint8:
		return strconv.FormatUint(uint64(n), 10), true
	case *big.Int:
		return n.String(), true
	}
	return "", false
}

// Plain converts Go types that are used beside wire values (map[string]any, []string, Raw, float32)
// to their wire form: Map, []any, the decoded value, float64. It changes only the outermost level.
// A Raw that does not decode becomes bytes.
func Plain(v any) any {
	switch x := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		m := make(Map, 0, len(x))
		for _, k := range keys {
			m = append(m, Pair{Key: k, Value: x[k]})
		}
		return m
	case []string:
		l := make([]any, len(x))
		for i, s := range x {
			l[i] = s
		}
		return l
	case Raw:
		d, err := Unpack(x)
		if err != nil {
			return []byte(x)
		}
		return d
	case float32:
		return float64(x)
	}
	return v
}

func appendRepr(b *strings.Builder, v any) {
	switch x := Plain(v).(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if x {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case string:
		appendQuoted(b, x)
	case []byte:
		appendBytes(b, x)
	case float64:
		b.WriteString(Float(x))
	case []any:
		b.WriteByte('[')
		for i, e := range x {
			if i > 0 {
				b.WriteString(", ")
			}
			appendRepr(b, e)
		}
		b.WriteByte(']')
	case Set:
		appendSet(b, x)
	case Map:
		b.WriteByte('{')
		for i, p := range x {
			if i > 0 {
				b.WriteString(", ")
			}
			appendRepr(b, p.Key)
			b.WriteString(": ")
			appendRepr(b, p.Value)
		}
		b.WriteByte('}')
	default:
		if s, ok := Int(x); ok {
			b.WriteString(s)
			return
		}
		b.WriteString(other(x))
	}
}

func appendSet(b *strings.Builder, s Set) {
	if len(s) == 0 {
		b.WriteString("set()")
		return
	}
	b.WriteByte('{')
	for i, e := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		appendRepr(b, e)
	}
	b.WriteByte('}')
}

// appendQuoted writes a text literal: single quotes unless only double ones save escapes.
func appendQuoted(b *strings.Builder, s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			hexEscape(b, 'x', uint32(s[i]), 2)
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			hexEscape(b, 'x', uint32(r), 2)
		case r < 0x10000:
			hexEscape(b, 'u', uint32(r), 4)
		default:
			hexEscape(b, 'U', uint32(r), 8)
		}
		i += n
	}
	b.WriteByte(quote)
}

func appendBytes(b *strings.Builder, s []byte) {
	quote := byte('\'')
	if strings.Contains(string(s), "'") && !strings.Contains(string(s), `"`) {
		quote = '"'
	}
	b.WriteByte('b')
	b.WriteByte(quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < 0x20 || c >= 0x7f:
			hexEscape(b, 'x', uint32(c), 2)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte(quote)
}

func hexEscape(b *strings.Builder, kind byte, v uint32, width int) {
	b.WriteByte('\\')
	b.WriteByte(kind)
	s := strconv.FormatUint(uint64(v), 16)
	for i := len(s); i < width; i++ {
		b.WriteByte('0')
	}
	b.WriteString(s)
}
