package yaml11

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// ParseArg turns one command-line argument into the value that Salt sends
// (salt/utils/args.py, yamlify_arg). What doesn't read as one of Salt's plain
// values stays the text it was. An integer that needs more than 64 bits is
// given as its decimal text, for that is how it travels.
func ParseArg(s string) any {
	trimmed := strings.TrimFunc(s, isPythonSpace)
	switch trimmed {
	case "", "---", "...":
		return s
	}
	if strings.Contains(s, "_") && strings.Trim(trimmed, "0123456789_") == "" {
		return s
	}
	if strings.ContainsAny(s, "\t\r\n") {
		return s
	}
	if s == "None" {
		return nil
	}
	v, err := Load([]byte(s))
	if err != nil {
		return s
	}
	comment := strings.Contains(s, "#")
	switch v := v.(type) {
	case nil:
		if comment || s == "!" {
			return s
		}
		return nil
	case string:
		if comment || v == "" && (s == "|" || s == "!") {
			return s
		}
		return v
	case Map:
		if !comment && !strings.HasPrefix(s, "{") {
			return s
		}
		return portable(v)
	case []any:
		if !comment && !strings.HasPrefix(s, "[") {
			return s
		}
		return portable(v)
	case bool, int64, uint64, float64:
		return v
	case *big.Int:
		return v.String()
	}
	return s
}

// portable replaces integers that no 64-bit type holds by their text.
func portable(v any) any {
	switch v := v.(type) {
	case *big.Int:
		return v.String()
	case []any:
		for i := range v {
			v[i] = portable(v[i])
		}
	case Map:
		for i := range v {
			v[i].Key, v[i].Value = portable(v[i].Key), portable(v[i].Value)
		}
	}
	return v
}

// ParseArgs splits the words of a command line into positional values and
// keyword values (name=value), each read by ParseArg. Keywords named in noParse
// keep their text. A keyword given twice keeps its place and its last value.
// A positional integer of 20 characters is a job id and stays text.
func ParseArgs(words []string, noParse ...string) (args []any, kwargs Map) {
	for _, w := range words {
		name, value, ok := splitKwarg(w)
		if !ok {
			args = append(args, jobID(ParseArg(w)))
			continue
		}
		var v any = value
		if !slices.Contains(noParse, name) {
			v = ParseArg(value)
		}
		kwargs = kwargs.Set(name, v)
	}
	return args, kwargs
}

// Condition joins positional and keyword values to the one list that travels as
// `arg`: keywords go into a last mapping marked with __kwarg__.
func Condition(args []any, kwargs Map) []any {
	list := append(make([]any, 0, len(args)+1), args...)
	if len(kwargs) > 0 {
		list = append(list, append(Map{{"__kwarg__", true}}, kwargs...))
	}
	return list
}

func jobID(v any) any {
	switch n := v.(type) {
	case int64:
		if s := strconv.FormatInt(n, 10); len(s) == 20 {
			return s
		}
	case uint64:
		if s := strconv.FormatUint(n, 10); len(s) == 20 {
			return s
		}
	}
	return v
}

// splitKwarg cuts name=value. The name starts with a letter or _, goes on with
// letters, digits, _, . and -; == is no keyword; neither is a value with a line
// break, but for one at its very end, which is dropped.
func splitKwarg(s string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(s, "=")
	if !ok || name == "" || strings.HasPrefix(value, "=") {
		return "", "", false
	}
	for i, r := range name {
		word := unicode.IsLetter(r) || r == '_' || unicode.Is(unicode.Nl, r) || unicode.Is(unicode.No, r)
		if i > 0 {
			word = word || unicode.Is(unicode.Nd, r) || r == '.' || r == '-'
		}
		if !word {
			return "", "", false
		}
	}
	value = strings.TrimSuffix(value, "\n")
	if strings.Contains(value, "\n") {
		return "", "", false
	}
	return name, value, true
}

func isPythonSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}
