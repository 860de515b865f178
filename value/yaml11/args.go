package yaml11

import (
	"errors"
	"math/big"
	"slices"
	"strings"
	"unicode"

	"clustermaster/value"
)

// ParseArg turns one command-line argument into the value that Salt sends (salt/utils/args.py,
// yamlify_arg). Text that does not read as one of Salt's plain values stays unchanged.
func ParseArg(s string) any {
	v, _ := ReadArg(s)
	return v
}

// ReadArg is ParseArg with an error where the text stays only because its aliases make a value too
// large or too deep: Salt takes that value.
func ReadArg(s string) (any, error) {
	trimmed := strings.TrimFunc(s, value.IsSpace)
	switch trimmed {
	case "", "---", "...":
		return s, nil
	}
	if strings.Contains(s, "_") && strings.Trim(trimmed, "0123456789_") == "" {
		return s, nil
	}
	if strings.ContainsAny(s, "\t\r\n") {
		return s, nil
	}
	if s == "None" {
		return nil, nil
	}
	doc, err := load([]byte(s), argNodesPerByte*len(s))
	var e *Error
	switch {
	case errors.As(err, &e) && (e.TooLarge || e.TooDeep):
		return s, err
	case err != nil:
		return s, nil
	}
	comment := strings.Contains(s, "#")
	switch v := doc.Value.(type) {
	case nil:
		if comment || s == "!" {
			return s, nil
		}
		return nil, nil
	case string:
		if comment || v == "" && (s == "|" || s == "!") {
			return s, nil
		}
		return v, nil
	case value.Map:
		if !comment && !strings.HasPrefix(s, "{") {
			return s, nil
		}
		return v, nil
	case []any:
		if !comment && !strings.HasPrefix(s, "[") {
			return s, nil
		}
		return v, nil
	case bool, int64, uint64, float64, *big.Int:
		return v, nil
	}
	return s, nil
}

// ParseArgs splits the words of a command line into positional values and
// keyword values (name=value), each read by ParseArg. Keywords named in noParse
// keep their text. A keyword given twice keeps its place and its last value.
// A positional integer of 20 characters is a job id and stays text.
func ParseArgs(words []string, noParse ...string) (args []any, kwargs value.Map) {
	for _, w := range words {
		name, text, ok := SplitKwarg(w)
		if !ok {
			args = append(args, jobID(ParseArg(w)))
			continue
		}
		var v any = text
		if !slices.Contains(noParse, name) {
			v = ParseArg(text)
		}
		kwargs = kwargs.Set(name, v)
	}
	return args, kwargs
}

// Condition joins positional and keyword values to one list for the field `arg`: keywords go into a
// last mapping marked with __kwarg__.
func Condition(args []any, kwargs value.Map) []any {
	list := append(make([]any, 0, len(args)+1), args...)
	if len(kwargs) > 0 {
		list = append(list, append(value.Map{{Key: "__kwarg__", Value: true}}, kwargs...))
	}
	return list
}

func jobID(v any) any {
	if s, ok := value.Int(v); ok && len(s) == 20 {
		return s
	}
	return v
}

// SplitKwarg cuts name=value. The name starts with a letter or _, and continues with letters,
// digits, _, . and -. Text with == is not a keyword; nor is a value with a line break, except one
// at its very end, which is dropped.
func SplitKwarg(s string) (name, text string, ok bool) {
	name, text, ok = strings.Cut(s, "=")
	if !ok || name == "" || strings.HasPrefix(text, "=") {
		return "", "", false
	}
	for i, r := range name {
		word := unicode.IsLetter(r) || r == '_' || unicode.Is(unicode.Nl, r) ||
			unicode.Is(unicode.No, r)
		if i > 0 {
			word = word || unicode.Is(unicode.Nd, r) || r == '.' || r == '-'
		}
		if !word {
			return "", "", false
		}
	}
	text = strings.TrimSuffix(text, "\n")
	if strings.Contains(text, "\n") {
		return "", "", false
	}
	return name, text, true
}
