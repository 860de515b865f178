package value

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
)

// Contains reports whether v is in list, by Python's rules.
func Contains(list []any, v any) bool {
	return slices.ContainsFunc(list, func(have any) bool { return Equal(have, v) })
}

// Equal is Python's a == b.
func Equal(a, b any) bool {
	switch x := a.(type) {
	case Map:
		y, ok := b.(Map)
		if !ok || len(x) != len(y) {
			return false
		}
		in := newIndex(y, 0)
		for _, p := range x {
			if i := in.find(y, p.Key); i < 0 || !Equal(p.Value, y[i].Value) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, Equal)
	case Set:
		y, ok := b.(Set)
		return ok && len(x) == len(y) &&
			!slices.ContainsFunc(x, func(v any) bool { return !Contains(y, v) })
	case Time:
		y, ok := b.(Time)
		return ok && x.Equal(y.Time)
	case Const:
		y, ok := b.(Const)
		return ok && x.Name == y.Name && Equal(x.Value, y.Value)
	}
	i, ok := Identity(a)
	j, too := Identity(b)
	return ok && too && i == j
}

// Identities of values that Go can't compare: an integer that no 64-bit type holds, and bytes.
type (
	bigKey   string
	bytesKey string
)

// Identity returns the value by which Python compares and hashes a plain value: 1, 1.0 and True are
// the same. Maps, lists and other values have none.
func Identity(v any) (any, bool) {
	switch x := v.(type) {
	case nil, string, int64:
		return x, true
	case []byte:
		return bytesKey(x), true
	case uint64:
		if x <= math.MaxInt64 {
			return int64(x), true
		}
		return x, true
	case int:
		return int64(x), true
	case bool:
		if x {
			return int64(1), true
		}
		return int64(0), true
	case float64:
		if x != math.Trunc(x) || math.IsInf(x, 0) {
			return x, true
		}
		if x >= -1<<63 && x < 1<<63 {
			return int64(x), true
		}
		n, _ := big.NewFloat(x).Int(nil)
		return Identity(n)
	case *big.Int:
		switch {
		case x.IsInt64():
			return x.Int64(), true
		case x.IsUint64():
			return x.Uint64(), true
		}
		return bigKey(x.String()), true
	}
	return nil, false
}

// Compare orders a and b as Python's < does: negative, 0 or positive. ok is false where Python
// raises a TypeError, such as for a text and a number, and for maps. Here a NaN is equal to every
// number.
func Compare(a, b any) (int, bool) {
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return strings.Compare(x, y), ok
	case []byte:
		y, ok := b.([]byte)
		return bytes.Compare(x, y), ok
	case Time:
		y, ok := b.(Time)
		return x.Compare(y.Time), ok
	case int64:
		if y, ok := b.(int64); ok {
			return cmp.Compare(x, y), true
		}
	case []any:
		y, ok := b.([]any)
		if !ok {
			return 0, false
		}
		for i := range min(len(x), len(y)) {
			if !Equal(x[i], y[i]) {
				return Compare(x[i], y[i])
			}
		}
		return cmp.Compare(len(x), len(y)), true
	}
	x, ok := exact(a)
	y, too := exact(b)
	if !ok || !too {
		return 0, false
	}
	if x == nil || y == nil {
		return 0, true
	}
	return x.Cmp(y), true
}

// exact returns a number without rounding; nil for a NaN.
func exact(v any) (*big.Float, bool) {
	switch x := v.(type) {
	case bool:
		return big.NewFloat(number(x)), true
	case float64:
		if math.IsNaN(x) {
			return nil, true
		}
		return big.NewFloat(x), true
	case *big.Int:
		return new(big.Float).SetInt(x), true
	}
	s, ok := Int(v)
	if !ok {
		return nil, false
	}
	n, _ := new(big.Int).SetString(s, 10)
	return new(big.Float).SetInt(n), true
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Sorted returns a copy of m in the order of Python's sorted(m). If Python can't compare two keys
// it returns false, and the copy in the old order.
func Sorted(m Map) (Map, bool) {
	out, ok := slices.Clone(m), true
	slices.SortStableFunc(out, func(a, b Pair) int {
		c, comparable := Compare(a.Key, b.Key)
		ok = ok && comparable
		return c
	})
	if !ok {
		return slices.Clone(m), false
	}
	return out, true
}
