package target

import (
	"strings"

	"clustermaster/value"
	"clustermaster/value/pyregex"
)

// leafKind is how the last part of a grain or pillar target is compared. All compare lower-cased
// text.
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
	tests map[string]leafTest // compiled leaf patterns
	steps int                 // of one walk, bounded
}

// leafTest is a compiled pattern. On a text it takes weight steps for each stepBytes, at most.
type leafTest struct {
	match  func(string) bool
	weight int
}

// Bounds of one walk.
const (
	maxSteps  = 200_000
	stepBytes = 256 // of a value count as a step
	stepKeys  = 8   // of a map in which one is looked for count as a step
)

// deepMatcher returns the test of a path such as "os:Debian" or "a:b:*". It tells done how many
// steps it took.
func deepMatcher(text, delimiter string, kind leafKind, regex *pyregex.Budget,
	done func(steps int)) func(value.Map) bool {
	d := &deep{kind: kind, regex: regex, tests: make(map[string]leafTest)}
	return func(data value.Map) bool {
		d.steps = 0
		found := d.path(data, text, delimiter)
		done(d.steps)
		return found
	}
}

// firstPart is the key where a path begins; ok is false for a path of one part only, which matches
// nothing, or of too many.
func firstPart(text, delimiter string) (key string, ok bool) {
	if delimiter == "" || strings.Count(text, delimiter) >= maxParts {
		return "", false
	}
	key, _, ok = strings.Cut(text, delimiter)
	return key, ok
}

// over counts a step and reports whether there were too many.
func (d *deep) over() bool { return d.spend(1) }

// spend is over for several steps.
func (d *deep) spend(steps int) bool {
	d.steps = min(d.steps+steps, maxSteps+1) // one minion's data doesn't spoil a target for others
	return d.steps > maxSteps
}

// leaf compares one value with the pattern.
func (d *deep) leaf(v any, want string) bool {
	if d.over() {
		return false
	}
	text := value.Lower(value.Str(v))
	d.spend(len(text) / stepBytes)
	if d.kind == leafExact {
		return text == value.Lower(want)
	}
	test, ok := d.tests[want]
	if !ok {
		test = d.compile(value.Lower(want))
		d.tests[want] = test
	}
	return !d.spend(test.weight*len(text)/stepBytes) && test.match(text)
}

// compile makes the test of a pattern.
func (d *deep) compile(pattern string) leafTest {
	if d.kind == leafGlob {
		t := leafTest{match: glob(pattern)}
		if strings.Contains(pattern, "*") {
			t.weight = len(pattern)
		}
		return t
	}
	match, ok := pyregex.StartIn(d.regex, pattern)
	if !ok {
		return leafTest{match: func(string) bool { return false }}
	}
	return leafTest{match: match, weight: pyregex.Program(pattern)}
}

// path tries every way to cut the expression into keys and a last part, the longest key path first.
func (d *deep) path(data value.Map, text, delimiter string) bool {
	parts := strings.Split(text, delimiter)
	if len(parts) > maxParts {
		return false
	}
	at := d.follow(data, parts[:len(parts)-1])
	for cut := len(parts) - 1; cut > 0; cut-- {
		if d.over() {
			return false
		}
		last := strings.Join(parts[cut:], delimiter)
		var found any
		switch {
		case cut == 1 && parts[0] == "*":
			last, found = text, data
		case cut < len(at):
			found = at[cut]
		default:
			continue
		}
		switch v := found.(type) {
		case value.Map:
			if len(v) > 0 && d.dict(v, last) {
				return true
			}
		case []any:
			for _, member := range v {
				if d.over() {
					return false
				}
				if m, ok := member.(value.Map); ok && d.dict(m, last) {
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

// follow returns data, and what each key leads to as far as the path goes.
func (d *deep) follow(data any, path []string) []any {
	at := append(make([]any, 0, len(path)+1), data)
	for i := range path {
		if d.spend(keysOf(data) / stepKeys) {
			break
		}
		var ok bool
		if data, ok = value.Follow(data, path[i:i+1]); !ok {
			break
		}
		at = append(at, data)
	}
	return at
}

// keysOf counts the keys among which a step through a value looks for one.
func keysOf(v any) int {
	switch v := v.(type) {
	case value.Map:
		return len(v)
	case []any:
		n := len(v)
		for _, member := range v {
			if m, ok := member.(value.Map); ok {
				n += len(m)
			}
		}
		return n
	}
	return 0
}

// dict matches a pattern against a map: its keys, paths below it, and with a leading "*:" anything
// inside.
func (d *deep) dict(m value.Map, want string) bool {
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
	if _, ok := m.Get(rest); ok || d.path(m, rest, value.Delimiter) {
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
		case value.Map:
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
