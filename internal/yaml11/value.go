package yaml11

import (
	"fmt"
	"math/big"
)

// Pair is one entry of a Map.
type Pair struct{ Key, Value any }

// Map is a mapping in the order of its source.
type Map []Pair

// Set holds the members of a !!set in the order of its source.
type Set []any

// Get returns the value under a text key.
func (m Map) Get(key string) (any, bool) {
	for _, p := range m {
		if k, ok := p.Key.(string); ok && k == key {
			return p.Value, true
		}
	}
	return nil, false
}

// Set returns the map with key set to v: replaced in place, else appended.
func (m Map) Set(key string, v any) Map {
	for i := range m {
		if k, ok := m[i].Key.(string); ok && k == key {
			m[i].Value = v
			return m
		}
	}
	return append(m, Pair{key, v})
}

// Error is a problem of a document at a place in it.
type Error struct {
	Line, Column int // from 1; 0 where the parser can't say
	Problem      string
	TooLarge     bool // it stands for more than Load makes of a document of its length
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.Problem
	case e.Column == 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Problem)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// integer stores n in the smallest of int64, uint64 and *big.Int.
func integer(n *big.Int) any {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.IsUint64():
		return n.Uint64()
	}
	return n
}

// identity is what Python compares and hashes a key by: 1, 1.0 and true are
// the same key there.
func identity(v any) (any, bool) {
	switch k := v.(type) {
	case nil, string, int64, uint64:
		return k, true
	case bool:
		if k {
			return int64(1), true
		}
		return int64(0), true
	case float64:
		if n := int64(k); float64(n) == k {
			return n, true
		}
		return k, true
	case *big.Int:
		return "\x00int " + k.String(), true
	case []byte:
		return "\x00bytes " + string(k), true
	}
	return nil, false
}
