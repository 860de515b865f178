package output

import (
	"strings"
	"unicode/utf8"

	"clustermaster/value"
)

// nestedText prints a value as indented lines. It is the outputter for results that name none.
func nestedText(o Options, r Result) (string, error) {
	n := nester{opts: o, c: o.colors(), failed: r.Retcode != 0}
	n.value(r.Value, r.Indent, "")
	return strings.Join(n.lines, "\n"), nil
}

type nester struct {
	opts   Options
	c      colors
	failed bool
	lines  []string
}

func (n *nester) line(indent int, color, prefix, text, suffix string) {
	n.lines = append(n.lines, strings.Repeat(" ", indent)+color+prefix+text+n.c.end+suffix)
}

func (n *nester) value(v any, indent int, prefix string) {
	switch x := v.(type) {
	case value.Map:
		n.dict(x, indent, prefix)
	case []any:
		n.list(x, indent)
	case []byte:
		if utf8.Valid(x) {
			n.text(string(x), indent, prefix)
		}
	case string:
		n.text(x, indent, prefix)
	case value.Time: // as in Salt, nothing
	default:
		n.line(indent, n.c.lightYellow, prefix, value.Repr(x), "")
	}
}

func (n *nester) text(s string, indent int, prefix string) {
	for _, line := range splitLines(s) {
		n.line(indent, n.c.green, prefix, n.opts.stripEscape(line), "")
		prefix = strings.Repeat(" ", len(prefix))
	}
}

func (n *nester) list(l []any, indent int) {
	color := n.c.green
	if n.failed {
		color = n.c.red
	}
	for _, e := range l {
		switch e.(type) {
		case value.Map:
			n.line(indent, color, "", "|_", "")
			n.value(e, indent+2, "")
		case []any:
			n.line(indent, color, "", "|_", "")
			n.value(e, indent+2, "- ")
		default:
			n.value(e, indent, "- ")
		}
	}
}

func (n *nester) dict(m value.Map, indent int, prefix string) {
	color := n.c.cyan
	if n.failed {
		color = n.c.red
	}
	if indent > 0 {
		n.line(indent, color, "", "----------", "")
	}
	for _, p := range sortedKeys(m) {
		n.line(indent, color, prefix, value.Str(p.Key), ":")
		n.value(p.Value, indent+4, "")
	}
}

// sortedKeys sorts a map by key. Keys of several types become texts first; of
// equal ones the last wins.
func sortedKeys(m value.Map) value.Map {
	sorted, ok := value.Sorted(m)
	if ok {
		return sorted
	}
	asText := value.Map{}
	for _, p := range m {
		asText = asText.Set(value.Str(p.Key), p.Value)
	}
	sorted, _ = value.Sorted(asText)
	return sorted
}
