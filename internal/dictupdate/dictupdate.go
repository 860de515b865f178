// Package dictupdate lays one map over another as Salt does (salt/utils/dictupdate.py).
//
// Lives here: the merge strategies of pillars, Python's equality of values.
//
// Does not: know what is merged. Nothing it is given is written to; results share values with it.
package dictupdate

import (
	"bytes"
	"fmt"
	"math"

	"clustermaster/wire"
)

// Merge lays b over a as a pillar_source_merging_strategy says; smart has been turned into recurse or aggregate.
func Merge(a, b wire.Map, strategy string, lists bool) wire.Map {
	switch strategy {
	case "list":
		return mergeList(a, b)
	case "aggregate": // of values without marks only the top level is joined
		return Update(a, b)
	case "overwrite":
		return Update(a, b)
	case "none":
		return Recurse(a, b, false)
	}
	return Recurse(a, b, lists)
}

// mergeList pairs the values of keys that are in both; keys that only b has are lost, as in Salt.
func mergeList(a, b wire.Map) wire.Map {
	in := newIndex(b, 0)
	out := make(wire.Map, len(a))
	for i, p := range a {
		out[i] = p
		if j := in.find(b, p.Key); j >= 0 {
			out[i].Value = []any{p.Value, b[j].Value}
		}
	}
	return out
}

// Update is Python's dict.update.
func Update(a, b wire.Map) wire.Map {
	return combine(a, b, func(_, v any) any { return v })
}

// Recurse joins maps on all levels; with lists also lists, without repeating what is there. Anything else of b wins.
func Recurse(a, b wire.Map, lists bool) wire.Map {
	return combine(a, b, func(old, v any) any {
		switch v := v.(type) {
		case wire.Map:
			if old, ok := old.(wire.Map); ok {
				return Recurse(old, v, lists)
			}
		case []any:
			if old, ok := old.([]any); ok && lists {
				return join(old, v)
			}
		}
		return v
	})
}

// combine adds b's entries to a copy of a; both decides on a key that is in both.
func combine(a, b wire.Map, both func(old, v any) any) wire.Map {
	out := make(wire.Map, len(a), len(a)+len(b))
	copy(out, a)
	in := newIndex(a, len(b))
	for _, p := range b {
		if i := in.find(out, p.Key); i >= 0 {
			out[i].Value = both(out[i].Value, p.Value)
			continue
		}
		in.add(p.Key, len(out))
		out = append(out, p)
	}
	return out
}

// join appends what of b is not in a; what b itself repeats stays repeated, as in Salt.
func join(a, b []any) []any {
	out := make([]any, len(a), len(a)+len(b))
	copy(out, a)
	have := make(map[any]bool, len(a)) // plain values of a
	for _, v := range a {
		if k, ok := identity(v); ok {
			have[k] = true
		}
	}
	for _, v := range b {
		if k, ok := identity(v); ok {
			if !have[k] {
				out = append(out, v)
			}
			continue
		}
		if !Contains(a, v) {
			out = append(out, v)
		}
	}
	return out
}

// Contains reports whether v is in list, as Python says.
func Contains(list []any, v any) bool {
	for _, have := range list {
		if Equal(have, v) {
			return true
		}
	}
	return false
}

// Equal is Python's ==.
func Equal(a, b any) bool {
	switch x := a.(type) {
	case wire.Map:
		y, ok := b.(wire.Map)
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
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !Equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case []byte:
		y, ok := b.([]byte)
		return ok && bytes.Equal(x, y)
	}
	i, ok := identity(a)
	j, too := identity(b)
	return ok && too && i == j
}

// identity is what Python compares a plain value by: 1, 1.0 and True are the same. Maps, lists and the like have none.
func identity(v any) (any, bool) {
	switch x := v.(type) {
	case nil, string, int64:
		return x, true
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
		if n := int64(x); float64(n) == x && x < 1<<63 {
			return n, true
		}
		return x, true
	}
	return nil, false
}

// Find returns where a key is in m, -1 if it is not there.
func Find(m wire.Map, key any) int { return newIndex(m, 0).find(m, key) }

// index finds keys of a map: by looking through short ones, by a table in long ones.
type index struct{ at map[any]int }

const shortMap = 8

// newIndex makes an index of m, to which up to more entries will be added.
func newIndex(m wire.Map, more int) *index {
	if len(m)+more <= shortMap {
		return &index{}
	}
	x := &index{at: make(map[any]int, len(m))}
	for i, p := range m {
		x.at[keyOf(p.Key)] = i
	}
	return x
}

func keyOf(k any) any {
	if id, ok := identity(k); ok {
		return id
	}
	return fmt.Sprintf("\x00%T %v", k, k)
}

func (x *index) find(m wire.Map, key any) int {
	k := keyOf(key)
	if x.at != nil {
		if i, ok := x.at[k]; ok {
			return i
		}
		return -1
	}
	for i := len(m) - 1; i >= 0; i-- {
		if keyOf(m[i].Key) == k {
			return i
		}
	}
	return -1
}

func (x *index) add(key any, i int) {
	if x.at != nil {
		x.at[keyOf(key)] = i
	}
}
