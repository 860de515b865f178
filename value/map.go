package value

import (
	"slices"
	"time"
	"unicode/utf8"
)

// Pair is one entry of a Map. Keys on the wire are nearly always text; nil, booleans, numbers,
// bytes and Time occur.
type Pair struct{ Key, Value any }

// Map is a msgpack map in wire order.
//
// If a key is repeated, the last one counts, as in Python.
type Map []Pair

// Get returns the value of a text key, and whether m has it.
func (m Map) Get(key string) (any, bool) {
	if i := m.index(key); i >= 0 {
		return m[i].Value, true
	}
	return nil, false
}

// String returns the value of key if it is text, else "".
func (m Map) String(key string) string {
	v, _ := m.Get(key)
	s, _ := v.(string)
	return s
}

// Bytes returns the value of key as bytes, also if it is text; nil if it is absent or neither.
func (m Map) Bytes(key string) []byte {
	v, _ := m.Get(key)
	b, _ := BytesOf(v)
	return b
}

// Set sets the value of key to v: in place if m has the key, else at the end. It returns the
// changed map, as append does.
func (m Map) Set(key string, v any) Map {
	if i := m.index(key); i >= 0 {
		m[i].Value = v
		return m
	}
	return append(m, Pair{key, v})
}

// Without returns a copy of m that lacks the given keys.
func (m Map) Without(keys ...string) Map {
	out := make(Map, 0, len(m))
	for _, p := range m {
		if k, ok := p.Key.(string); ok && slices.Contains(keys, k) {
			continue
		}
		out = append(out, p)
	}
	return out
}

func (m Map) index(key string) int {
	for i := len(m) - 1; i >= 0; i-- {
		if k, ok := m[i].Key.(string); ok && k == key {
			return i
		}
	}
	return -1
}

// Set holds the members of a YAML !!set in the order of its source. Pack writes it as a list.
type Set []any

// Raw is one encoded msgpack value, passed on unchanged. An empty Raw packs as nil.
type Raw []byte

// Unpack decodes the value, with the errors of the function Unpack.
func (r Raw) Unpack() (any, error) { return Unpack(r) }

// Map decodes a value that must be a map.
func (r Raw) Map() (Map, error) { return UnpackMap(r) }

// IsNil reports whether the value is nil or r is empty.
func (r Raw) IsNil() bool { return len(r) == 0 || (len(r) == 1 && r[0] == 0xc0) }

// IsMap reports whether the value is a map.
func (r Raw) IsMap() bool {
	h, err := ReadHead(r, 0)
	return err == nil && h.Kind == KindMap
}

// Text returns the value if it is text.
func (r Raw) Text() (string, bool) {
	b, ok := r.Bytes()
	if !ok || !utf8.Valid(b) {
		return "", false
	}
	return string(b), true
}

// Bytes returns the content of a text or byte string, sharing memory with r.
func (r Raw) Bytes() ([]byte, bool) {
	h, err := ReadHead(r, 0)
	if err != nil || h.Kind != KindRaw {
		return nil, false
	}
	return r[h.End : h.End+h.N : h.End+h.N], true
}

// AllText reports whether all text within r, one value, is UTF-8, as readers of the new
// specification expect. Values encoded as bytes may hold anything.
func (r Raw) AllText() bool {
	for pos := 0; pos < len(r); {
		h, err := ReadHead(r, pos)
		if err != nil {
			return false
		}
		pos = h.End
		switch h.Kind {
		case KindRaw:
			pos += h.N
			if !h.Bin && !utf8.Valid(r[h.End:pos]) {
				return false
			}
		case KindExt:
			pos += h.N
		}
	}
	return true
}

// Int returns the value if it is an integer that fits.
func (r Raw) Int() (int64, bool) {
	h, err := ReadHead(r, 0)
	if err != nil || h.Kind != KindInt {
		return 0, false
	}
	return int64(h.Bits), true
}

// Bool returns the value, and whether it is a boolean.
func (r Raw) Bool() (value, ok bool) {
	h, err := ReadHead(r, 0)
	if err != nil || (h.Kind != KindTrue && h.Kind != KindFalse) {
		return false, false
	}
	return h.Kind == KindTrue, true
}

// Time is a date and time (extension 78): a wall clock in microseconds without a time zone. It is
// read as UTC.
type Time struct{ time.Time }

// timeLayout is the text inside extension 78.
const timeLayout = "20060102T15:04:05.000000"

// Const is one of Salt's named constants, such as NOT_SET (extension 79).
type Const struct {
	Name  string
	Value any
}

// BytesOf returns text or bytes as bytes, and whether v is either.
func BytesOf(v any) ([]byte, bool) {
	switch v := v.(type) {
	case string:
		return []byte(v), true
	case []byte:
		return v, true
	}
	return nil, false
}
