package output

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"clustermaster/value"
)

// errShape says that a value does not have the shape that an outputter needs. Text then
// tries another outputter.
var errShape = errors.New("value has another shape")

// Result is one document to print.
type Result struct {
	Value     any
	Outputter string // the result's own outputter; "" for none
	Retcode   int    // other than 0: nested prints keys in red
	Indent    int    // leading blanks of nested
}

// formats are the outputters by name.
var formats = map[string]func(Options, Result) (string, error){
	"nested":    nestedText,
	"highstate": highstateText,
	"json":      jsonText,
	"yaml":      yamlText,
	"txt":       txtText,
	"raw": func(_ Options, r Result) (string,
		error) {
		return value.Str(r.Value), nil
	},
	"pprint":              pprintText,
	"table":               tableText,
	"key":                 keyText,
	"no_return":           noReturnText,
	"newline_values_only": valuesText,
	"quiet":               func(Options, Result) (string, error) { return "", nil },
}

// Known reports whether an outputter of that name exists.
func Known(name string) bool {
	_, ok := formats[name]
	return ok || name == "text"
}

// Choose returns the outputter for a result, in Salt's order: the user's, the result's, highstate
// for --static state.*, nested.
func (o Options) Choose(asked string) string {
	out := o.wanted(asked)
	if !Known(out) {
		if out != "grains" {
			o.warn("Invalid outputter " + out + " specified, fall back to nested")
		}
		out = "nested"
	}
	return out
}

// wanted is Choose before the check that the outputter exists.
func (o Options) wanted(asked string) string {
	out := asked
	if o.Output != "" && o.Output != "highstate" {
		out = o.Output
	}
	if out == "" && o.Static {
		if fam, _, _ := strings.Cut(o.Fun, "."); fam == "state" || o.Output == "highstate" {
			out = "highstate"
		}
	}
	switch {
	case out == "text":
		out = "txt"
	case out == "":
		out = "nested"
	}
	return out
}

// Text formats the document, without trailing white space. If the chosen outputter can't print the
// value, nested does, and then raw.
func (o Options) Text(r Result) string {
	r.Value = plain(r.Value)
	if name := o.wanted(r.Outputter); !Known(name) && name != "grains" && o.Other != nil {
		text, known, err := o.Other(name, r)
		if err != nil {
			o.warn(fmt.Sprintf("Outputter %s can't print this result (%s), fall back to nested", name,
				err))
			r.Outputter, o.Output = "nested", ""
		} else if known {
			return strings.TrimRightFunc(text, value.IsSpace)
		}
	}
	name := o.Choose(r.Outputter)
	for i, n := range []string{name, "nested", "raw"} {
		text, err := formats[n](o, r)
		if err == nil {
			return strings.TrimRightFunc(text, value.IsSpace)
		}
		if i == 0 && name == o.Output {
			o.warn(fmt.Sprintf("Outputter %s can't print this result (%s), fall back to nested",
				name, err))
		}
	}
	return ""
}

// Display writes the document and a line break, or nothing if the document is empty.
func (o Options) Display(w io.Writer, r Result) error {
	text := o.Text(r)
	if text == "" {
		return nil
	}
	if _, err := io.WriteString(w, text+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (o Options) warn(text string) {
	if o.Warn != nil {
		o.Warn(text)
	}
}

// plain converts a value and all its parts to wire values, so that outputters handle few types:
// value.Map, []any, string, []byte, int64, uint64, float64, bool, value.Time, nil, and text for the
// rest.
func plain(v any) any {
	v = value.Plain(v)
	if whole, ok := eachPart(v, plain); ok {
		return whole
	}
	switch x := v.(type) {
	case nil, bool, string, []byte, int64, uint64, float64, value.Time:
		return x
	case int:
		return int64(x)
	default:
		return value.Repr(x)
	}
}

// eachPart converts the keys and values of a map, or the elements of a list; ok is false for what
// is neither.
func eachPart(v any, convert func(any) any) (whole any, ok bool) {
	switch x := v.(type) {
	case value.Map:
		m := make(value.Map, len(x))
		for i, p := range x {
			m[i] = value.Pair{Key: convert(p.Key), Value: convert(p.Value)}
		}
		return m, true
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = convert(e)
		}
		return l, true
	}
	return nil, false
}

// splitLines is Python's str.splitlines: it knows more line ends than "\n", and a line end
// at the end adds no line.
func splitLines(s string) []string {
	var lines []string
	start := 0
	for i, r := range s {
		if i < start {
			continue // the second half of "\r\n"
		}
		switch r {
		case '\n', '\v', '\f', 0x1c, 0x1d, 0x1e:
			lines, start = append(lines, s[start:i]), i+1
		case '\r':
			lines, start = append(lines, s[start:i]), i+1
			if strings.HasPrefix(s[start:], "\n") {
				start++
			}
		case 0x85:
			lines, start = append(lines, s[start:i]), i+2
		case 0x2028, 0x2029:
			lines, start = append(lines, s[start:i]), i+3
		}
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

// stripEscape keeps escape sequences in data from controlling the terminal.
func (o Options) stripEscape(s string) string {
	if !o.StripColors {
		return s
	}
	return strings.ReplaceAll(s, "\x1b", "?")
}
