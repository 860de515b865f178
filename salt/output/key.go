package output

import (
	"strings"

	"clustermaster/value"
)

// keyText prints lists of keys, or maps of key to text, by state. The states are sorted by name.
func keyText(o Options, r Result) (string, error) {
	m, ok := r.Value.(value.Map)
	if !ok {
		return "", errShape
	}
	c := o.colors()
	styles := map[string]struct{ title, titleColor, color string }{
		"minions_pre":      {"Unaccepted Keys:", c.lightRed, c.red},
		"minions":          {"Accepted Keys:", c.lightGreen, c.green},
		"minions_denied":   {"Denied Keys:", c.lightMagenta, c.magenta},
		"minions_rejected": {"Rejected Keys:", c.lightBlue, c.blue},
		"local":            {"Local Keys:", c.lightMagenta, c.magenta},
	}
	var lines []string
	for _, p := range sortedKeys(m) {
		state, _ := p.Key.(string)
		s, ok := styles[state]
		if !ok {
			return "", errShape
		}
		lines = append(lines, s.titleColor+s.title+c.end)
		switch x := p.Value.(type) {
		case []any:
			for _, id := range sortedTexts(x) {
				lines = append(lines, s.color+o.stripEscape(id)+c.end)
			}
		case value.Map:
			for _, q := range sortedKeys(x) {
				texts, several := q.Value.([]any) // an id may have several denied keys
				if !several {
					texts = []any{q.Value}
				}
				for _, text := range texts {
					lines = append(lines, s.color+o.stripEscape(value.Str(q.Key))+":  "+
						value.Str(text)+c.end)
				}
			}
		default:
			return "", errShape
		}
	}
	return strings.Join(lines, "\n"), nil
}

func sortedTexts(l []any) []string {
	m := make(value.Map, len(l))
	for i, e := range l {
		m[i] = value.Pair{Key: value.Str(e)}
	}
	m, _ = value.Sorted(m)
	out := make([]string, len(m))
	for i, p := range m {
		out[i] = p.Key.(string)
	}
	return out
}

// noReturnText prints the notice for a minion that did not return.
func noReturnText(o Options, r Result) (string, error) {
	var b strings.Builder
	silent(&b, o.colors(), r.Value, 0)
	return b.String(), nil
}

func silent(b *strings.Builder, c colors, v any, indent int) {
	blanks := strings.Repeat(" ", indent)
	switch x := v.(type) {
	case string:
		for _, line := range strings.Split(x, "\n") {
			b.WriteString(c.red + blanks + line + c.end + "\n")
		}
	case value.Map:
		for _, p := range sortedKeys(x) {
			b.WriteString(c.cyan + blanks + value.Str(p.Key) + c.end + ":\n")
			silent(b, c, p.Value, indent+4)
		}
	}
}
