package value

import "fmt"

// Merge merges b into a by a pillar_source_merging_strategy; callers have replaced smart by recurse
// or aggregate.
func Merge(a, b Map, strategy string, lists bool) Map {
	switch strategy {
	case "list":
		return mergeList(a, b)
	case "aggregate": // without marks it joins only the top level
		return Update(a, b)
	case "overwrite":
		return Update(a, b)
	case "none":
		return Recurse(a, b, false)
	}
	return Recurse(a, b, lists)
}

// mergeList pairs the values of keys that are in both; it drops keys that only b has, as in Salt.
func mergeList(a, b Map) Map {
	in := newIndex(b, 0)
	out := make(Map, len(a))
	for i, p := range a {
		out[i] = p
		if j := in.find(b, p.Key); j >= 0 {
			out[i].Value = []any{p.Value, b[j].Value}
		}
	}
	return out
}

// Update is Python's dict.update.
func Update(a, b Map) Map {
	return combine(a, b, func(_, v any) any { return v })
}

// Recurse joins maps on all levels; with lists also lists, without repeating items. Anything else
// of b wins.
func Recurse(a, b Map, lists bool) Map {
	return combine(a, b, func(old, v any) any {
		switch v := v.(type) {
		case Map:
			if old, ok := old.(Map); ok {
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
func combine(a, b Map, both func(old, v any) any) Map {
	out := make(Map, len(a), len(a)+len(b))
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

// join appends the items of b that are not in a; items repeated within b stay repeated, as in Salt.
func join(a, b []any) []any {
	out := make([]any, len(a), len(a)+len(b))
	copy(out, a)
	have := make(map[any]bool, len(a)) // plain values of a
	for _, v := range a {
		if k, ok := Identity(v); ok {
			have[k] = true
		}
	}
	for _, v := range b {
		if k, ok := Identity(v); ok {
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

// Find returns the index of a key in m, or -1.
func Find(m Map, key any) int { return new(keyIndex).find(m, key) }

// keyIndex finds keys of a map: by a linear search in short ones, by a table in long ones.
type keyIndex struct{ at map[any]int }

const shortMap = 8

// newIndex makes an index of m, to which up to more entries will be added.
func newIndex(m Map, more int) *keyIndex {
	if len(m)+more <= shortMap {
		return &keyIndex{}
	}
	x := &keyIndex{at: make(map[any]int, len(m))}
	for i, p := range m {
		x.at[keyOf(p.Key)] = i
	}
	return x
}

func keyOf(k any) any {
	if id, ok := Identity(k); ok {
		return id
	}
	return fmt.Sprintf("\x00%T %v", k, k)
}

func (x *keyIndex) find(m Map, key any) int {
	k := keyOf(key)
	if x.at != nil {
		if i, ok := x.at[k]; ok {
			return i
		}
		return -1
	}
	_, plain := Identity(key)
	for i := len(m) - 1; i >= 0; i-- {
		if have, ok := Identity(m[i].Key); ok == plain && (have == k || !ok && keyOf(m[i].Key) == k) {
			return i
		}
	}
	return -1
}

func (x *keyIndex) add(key any, i int) {
	if x.at != nil {
		x.at[keyOf(key)] = i
	}
}
