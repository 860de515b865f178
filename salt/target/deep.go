package target

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"clustermaster/internal/pyregex"
	"clustermaster/internal/pytext"
	"clustermaster/wire"
)

// leafKind is how the last part of a grain or pillar target is compared. All compare lower-cased text.
type leafKind uint8

const (
	leafGlob leafKind = iota
	leafRegex
	leafExact
)

// maxParts bounds the parts of a path; each way to cut the path costs a walk.
const maxParts = 64

// deep walks grains or pillar along one path (salt/utils/data.py, Salt 3008).
type deep struct {
	kind  leafKind
	regex *pyregex.Budget
	tests map[string]func(string) bool // compiled leaf patterns
	steps int                          // of one walk, bounded
}

// Bounds of one walk.
const (
	maxSteps  = 200_000
	stepBytes = 256 // of a value count as a step
)

// deepMatcher returns the test of a path such as "os:Debian" or "a:b:*". It tells done how many steps it took.
func deepMatcher(text, delimiter string, kind leafKind, regex *pyregex.Budget, done func(steps int)) func(wire.Map) bool {
	d := &deep{kind: kind, regex: regex, tests: make(map[string]func(string) bool)}
	return func(data wire.Map) bool {
		d.steps = 0
		found := d.path(data, text, delimiter)
		done(d.steps)
		return found
	}
}

// firstPart is the key where a path begins; ok is false for a path of one part only, which matches nothing, or of too many.
func firstPart(text, delimiter string) (key string, ok bool) {
	if delimiter == "" || strings.Count(text, delimiter) >= maxParts {
		return "", false
	}
	key, _, ok = strings.Cut(text, delimiter)
	return key, ok
}

// over counts a step and reports whether there were too many.
func (d *deep) over() bool {
	d.steps++
	return d.steps > maxSteps
}

// leaf compares one value with the pattern.
func (d *deep) leaf(v any, want string) bool {
	if d.over() {
		return false
	}
	text := pytext.Lower(Text(v))
	d.steps += len(text) / stepBytes
	if d.kind == leafExact {
		return text == pytext.Lower(want)
	}
	test, ok := d.tests[want]
	if !ok {
		lower := pytext.Lower(want)
		if d.kind == leafGlob {
			test = glob(lower)
		} else if test, ok = pyregex.StartIn(d.regex, lower); !ok {
			test = func(string) bool { return false }
		}
		d.tests[want] = test
	}
	return test(text)
}

// path tries every way to cut the expression into keys and a last part, the longest key path first.
func (d *deep) path(data wire.Map, text, delimiter string) bool {
	parts := strings.Split(text, delimiter)
	if len(parts) > maxParts {
		return false
	}
	for cut := len(parts) - 1; cut > 0; cut-- {
		if d.over() {
			return false
		}
		last := strings.Join(parts[cut:], delimiter)
		var found any
		if cut == 1 && parts[0] == "*" {
			last, found = text, data
		} else {
			var ok bool
			if found, ok = walk(data, parts[:cut]); !ok {
				continue
			}
		}
		switch v := found.(type) {
		case wire.Map:
			if len(v) > 0 && d.dict(v, last) {
				return true
			}
		case []any:
			for _, member := range v {
				if d.over() {
					return false
				}
				if m, ok := member.(wire.Map); ok && d.dict(m, last) {
					return true
				}
				if d.leaf(member, last) {
					return true
				}
			}
		default:
			if d.leaf(v, last) {
				return true
			}
		}
	}
	return false
}

// dict matches a pattern against a map: its keys, paths below it, and with a leading "*:" anything inside.
func (d *deep) dict(m wire.Map, want string) bool {
	if d.over() {
		return false
	}
	rest, wildcard := strings.CutPrefix(want, "*:")
	if rest == "*" {
		return true
	}
	for _, p := range m {
		if d.leaf(p.Key, rest) {
			return true
		}
		if d.steps > maxSteps {
			return false
		}
	}
	if _, ok := m.Get(rest); ok || d.path(m, rest, DefaultDelimiter) {
		return true
	}
	if !wildcard {
		return false
	}
	for _, p := range m {
		if d.over() {
			return false
		}
		switch v := p.Value.(type) {
		case wire.Map:
			if d.dict(v, rest) {
				return true
			}
		case []any:
			for _, item := range v {
				if d.leaf(item, rest) {
					return true
				}
			}
		default:
			if d.leaf(v, rest) {
				return true
			}
		}
	}
	return false
}

// Walk returns what lies at a path such as "a:b:0" in maps and lists. A number is an index of a list; other text looks into the maps
// in a list (salt.utils.data.traverse_dict_and_list, Salt 3008).
func Walk(v any, path, delimiter string) (found any, ok bool) {
	return walk(v, strings.Split(path, delimiter))
}

// walk follows keys through maps and lists. A number is an index of a list; text looks into the maps in a list.
func walk(v any, keys []string) (any, bool) {
	for _, key := range keys {
		switch at := v.(type) {
		case wire.Map:
			next, ok := at.Get(key)
			if !ok {
				next, ok = numberKey(at, key)
			}
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			next, ok := intoList(at, key)
			if !ok {
				return nil, false
			}
			v = next
		default:
			return nil, false
		}
	}
	return v, true
}

// numberKey finds a key that is a number or a truth value by its text.
func numberKey(m wire.Map, key string) (any, bool) {
	for _, p := range m {
		switch k := p.Key.(type) {
		case int64, uint64, float64, bool:
			if Text(k) == key {
				return p.Value, true
			}
		}
	}
	return nil, false
}

func intoList(list []any, key string) (any, bool) {
	idx, err := strconv.Atoi(key)
	for _, item := range list {
		m, ok := item.(wire.Map)
		if !ok {
			continue
		}
		if err != nil {
			if v, ok := m.Get(key); ok {
				return v, true
			}
		} else if v, ok := numberKey(m, key); ok {
			return v, true
		}
	}
	if err != nil {
		return nil, false
	}
	if idx < 0 {
		idx += len(list)
	}
	if idx < 0 || idx >= len(list) {
		return nil, false
	}
	return list[idx], true
}

// Text is Python's str() of a wire value, as far as targets and auto-sign need it.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	case float64:
		return pyFloat(v)
	case []byte:
		return string(v)
	}
	return fmt.Sprint(v)
}

func pyFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
