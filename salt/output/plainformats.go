package output

import (
	"strings"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// jsonText prints JSON with four blanks of indentation and the keys in their order of arrival. A
// value without a JSON form prints as {}.
func jsonText(o Options, r Result) (string, error) {
	style := value.JSONStyle{Indent: 4}
	switch {
	case o.Indent.Pretty:
		style.SortKeys = true
	case o.Indent.Set:
		style.Indent = o.Indent.N
	}
	text, err := value.JSON(r.Value, style)
	if err != nil {
		return "{}", nil
	}
	return text, nil
}

func yamlText(o Options, r Result) (string, error) {
	var style yaml11.Style
	if o.Indent.Set && !o.Indent.Pretty {
		style.Indent, style.Flow = o.Indent.N, o.Indent.N < 0
	}
	return string(yaml11.DumpStyle(r.Value, style)), nil
}

// txtText prints "key: line" for each line of each value.
func txtText(_ Options, r Result) (string, error) {
	var b strings.Builder
	switch x := r.Value.(type) {
	case value.Map:
		for _, p := range x {
			key := value.Str(p.Key)
			lines := []string{value.Str(p.Value)}
			switch v := p.Value.(type) {
			case string:
				lines = splitLines(v)
			case []byte:
				lines = byteLines(v)
			}
			for _, line := range lines {
				b.WriteString(key + ": " + line + "\n")
			}
		}
	case string:
		b.WriteString(x + "\n")
	default:
		b.WriteString(pformat(x, 1) + "\n")
	}
	return b.String(), nil
}

func byteLines(v []byte) []string {
	var lines []string
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(v))
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		lines = append(lines, value.Repr([]byte(line)))
	}
	if len(v) == 0 {
		return nil
	}
	return lines
}

func pprintText(o Options, r Result) (string, error) {
	if o.Indent.Set && o.Indent.N >= 0 && !o.Indent.Pretty {
		return pformat(r.Value, o.Indent.N), nil
	}
	return pformat(r.Value, 1), nil
}

// valuesText prints the values of a map, one a line. Lists are flattened one level deep.
func valuesText(_ Options, r Result) (string, error) {
	m, ok := r.Value.(value.Map)
	if !ok {
		return "", errShape
	}
	var lines []string
	for _, p := range m {
		values, ok := p.Value.([]any)
		if !ok {
			values = []any{p.Value}
		}
		for _, v := range values {
			lines = append(lines, value.Str(v))
		}
	}
	return strings.Join(lines, "\n"), nil
}
