package output

import (
	"strings"
	"unicode/utf8"

	"clustermaster/value"
)

const pprintWidth = 80

// pformat is Python's pprint.pformat: one line if it fits into 80 columns, otherwise one element a
// line. Map keys are sorted.
func pformat(v any, indent int) string {
	p := pretty{indent: indent}
	p.value(v, 0, 0, 1)
	return p.b.String()
}

type pretty struct {
	b      strings.Builder
	indent int
}

// value writes v at a column. allowance is the width that its last line must leave free, level
// the depth of containers.
func (p *pretty) value(v any, column, allowance, level int) {
	rep := sortedRepr(v)
	if utf8.RuneCountInString(rep) <= pprintWidth-column-allowance {
		p.b.WriteString(rep)
		return
	}
	switch x := v.(type) {
	case value.Map:
		if len(x) > 0 {
			p.dict(x, column, allowance, level)
			return
		}
	case []any:
		if len(x) > 0 {
			p.list(x, column, allowance, level)
			return
		}
	case string:
		if x != "" {
			p.text(x, column, allowance, level)
			return
		}
	case []byte:
		if len(x) > 4 {
			p.bytes(x, column, allowance, level)
			return
		}
	}
	p.b.WriteString(rep)
}

func (p *pretty) dict(m value.Map, column, allowance, level int) {
	p.b.WriteByte('{')
	p.b.WriteString(strings.Repeat(" ", max(p.indent-1, 0)))
	column += p.indent
	for i, e := range pprintOrder(m) {
		last := i == len(m)-1
		key := sortedRepr(e.Key)
		p.b.WriteString(key + ": ")
		tail := 1
		if last {
			tail = allowance + 1
		}
		p.value(e.Value, column+utf8.RuneCountInString(key)+2, tail, level+1)
		if !last {
			p.b.WriteString(",\n" + strings.Repeat(" ", column))
		}
	}
	p.b.WriteByte('}')
}

func (p *pretty) list(l []any, column, allowance, level int) {
	p.b.WriteByte('[')
	p.b.WriteString(strings.Repeat(" ", max(p.indent-1, 0)))
	column += p.indent
	for i, e := range l {
		tail := 1
		if i == len(l)-1 {
			tail = allowance + 1
		}
		p.value(e, column, tail, level+1)
		if i < len(l)-1 {
			p.b.WriteString(",\n" + strings.Repeat(" ", column))
		}
	}
	p.b.WriteByte(']')
}

// text splits a long text at its lines, and lines at blanks, into literals one below the other.
func (p *pretty) text(s string, column, allowance, level int) {
	lines := keepEnds(s)
	if level == 1 {
		column++
		allowance++
	}
	var chunks []string
	maxWidth := pprintWidth - column
	for i, line := range lines {
		rep := value.Repr(line)
		room := maxWidth
		if i == len(lines)-1 {
			room -= allowance
		}
		if utf8.RuneCountInString(rep) <= room {
			chunks = append(chunks, rep)
			continue
		}
		parts := words(line)
		current := ""
		for j, part := range parts {
			candidate := current + part
			room := pprintWidth - column
			if j == len(parts)-1 && i == len(lines)-1 {
				room -= allowance
			}
			if utf8.RuneCountInString(value.Repr(candidate)) > room {
				if current != "" {
					chunks = append(chunks, value.Repr(current))
				}
				current = part
			} else {
				current = candidate
			}
		}
		if current != "" {
			chunks = append(chunks, value.Repr(current))
		}
	}
	if len(chunks) == 1 {
		p.b.WriteString(chunks[0])
		return
	}
	p.literals(chunks, column, level)
}

// bytes splits bytes into groups of four and writes as many as fit on a line.
func (p *pretty) bytes(v []byte, column, allowance, level int) {
	if level == 1 {
		column++
		allowance++
	}
	var chunks []string
	current := []byte{}
	last := len(v) / 4 * 4
	for i := 0; i < len(v); i += 4 {
		part := v[i:min(i+4, len(v))]
		candidate := append(append([]byte{}, current...), part...)
		room := pprintWidth - column
		if i == last {
			room -= allowance
		}
		if len(value.Repr(candidate)) > room {
			if len(current) > 0 {
				chunks = append(chunks, value.Repr(current))
			}
			current = append([]byte{}, part...)
		} else {
			current = candidate
		}
	}
	if len(current) > 0 {
		chunks = append(chunks, value.Repr(current))
	}
	p.literals(chunks, column, level)
}

func (p *pretty) literals(chunks []string, column, level int) {
	if level == 1 {
		p.b.WriteByte('(')
	}
	p.b.WriteString(strings.Join(chunks, "\n"+strings.Repeat(" ", column)))
	if level == 1 {
		p.b.WriteByte(')')
	}
}

// keepEnds is Python's str.splitlines(True).
func keepEnds(s string) []string {
	var out []string
	for _, line := range splitLines(s) {
		end := len(line)
		rest := s[end:]
		switch {
		case strings.HasPrefix(rest, "\r\n"):
			end += 2
		case rest != "":
			_, n := utf8.DecodeRuneInString(rest)
			end += n
		}
		out, s = append(out, s[:end]), s[end:]
	}
	return out
}

// words splits a line after each run of blanks.
func words(line string) []string {
	var out []string
	start, inSpace := 0, false
	for i, r := range line {
		space := value.IsSpace(r)
		if inSpace && !space {
			out, start = append(out, line[start:i]), i
		}
		inSpace = space
	}
	return append(out, line[start:])
}

// sortedRepr is repr with the keys of maps in pprint's order.
func sortedRepr(v any) string {
	return value.Repr(inOrder(v))
}

func inOrder(v any) any {
	switch x := v.(type) {
	case value.Map:
		m := make(value.Map, 0, len(x))
		for _, p := range pprintOrder(x) {
			m = append(m, value.Pair{Key: p.Key, Value: inOrder(p.Value)})
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = inOrder(e)
		}
		return l
	}
	return v
}

// pprintOrder sorts keys. As in pprint, keys of several types are grouped by
// the names of their types.
func pprintOrder(m value.Map) value.Map {
	if sorted, ok := value.Sorted(m); ok {
		return sorted
	}
	groups := map[string]value.Map{}
	for _, p := range m {
		name := "str"
		switch p.Key.(type) {
		case nil:
			name = "NoneType"
		case bool:
			name = "bool"
		case []byte:
			name = "bytes"
		case value.Time:
			name = "datetime.datetime"
		case float64:
			name = "float"
		case int64, uint64:
			name = "int"
		}
		groups[name] = append(groups[name], p)
	}
	out := value.Map{}
	for _, name := range []string{"NoneType", "bool", "bytes", "datetime.datetime", "float", "int",
		"str"} {
		sorted, _ := value.Sorted(groups[name])
		out = append(out, sorted...)
	}
	return out
}
