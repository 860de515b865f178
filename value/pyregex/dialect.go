package pyregex

import (
	"regexp"
	"strings"
)

// refused is what regexp2 does not compile. Expressions that Python refuses must not mean something
// here.
const refused = "("

var (
	// openRepeat is a repeat without a lower bound, which .NET takes for text.
	openRepeat = regexp.MustCompile(`^\{,([0-9]*)\}`)
	// groups are the forms of groups that both have, and the flags that mean the same to both.
	groups = regexp.MustCompile(`^\(\?(?:[:=!#>(]|<[=!]|[imsxu]*(?:-[imsx]+)?[:)])`)
	named  = regexp.MustCompile(`^\(\?P<([A-Za-z_][A-Za-z0-9_]*)>`)
	again  = regexp.MustCompile(`^\(\?P=([A-Za-z_][A-Za-z0-9_]*)\)`)
)

// Letters that may follow a backslash in Python and mean the same to both, outside of classes and
// in them.
const (
	escapes      = "abBAdDfnrsStuvwWx"
	classEscapes = "abdDfnrsStuvwWx"
)

// dialect writes a Python expression in the dialect of regexp2 (.NET): groups by their names, \Z,
// which is the very end, as \z, {,n} as {0,n}, brackets in classes as themselves, for they subtract
// classes there, and blanks with U+001C to U+001F. What Python refuses, or only its newest releases
// take, is refused.
func dialect(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); {
		text, n := p[i:i+1], 1
		switch p[i] {
		case '\\':
			text, n = escaped(p[i:], escapes)
		case '[':
			text, n = classOf(p[i:])
		case '{':
			if m := openRepeat.FindStringSubmatch(p[i:]); m != nil {
				text, n = "{0,"+m[1]+"}", len(m[0])
			}
		case '(':
			if strings.HasPrefix(p[i:], "(?") {
				text, n = opened(p[i:])
			}
		}
		if n == 0 {
			return refused
		}
		b.WriteString(text)
		i += n
	}
	return b.String()
}

// opened writes the beginning of a special group at the start of s, of n bytes; 0 if Python refuses
// it.
func opened(s string) (text string, n int) {
	if m := named.FindStringSubmatch(s); m != nil {
		return "(?<" + m[1] + ">", len(m[0])
	}
	if m := again.FindStringSubmatch(s); m != nil {
		return `\k<` + m[1] + ">", len(m[0])
	}
	m := groups.FindString(s)
	if m == "" {
		return "", 0
	}
	if strings.HasPrefix(m, "(?#") {
		end := strings.IndexByte(s, ')')
		return "", end + 1
	}
	text = strings.ReplaceAll(m, "u", "") // the default
	if text == "(?)" {
		text = ""
	}
	return text, len(m)
}

// escaped writes the escape at the start of s, of n bytes; 0 if Python refuses it.
func escaped(s, letters string) (text string, n int) {
	if len(s) < 2 {
		return "", 0
	}
	switch c := s[1]; {
	case c == 'Z' && letters == escapes:
		return `\z`, 2
	case c == 's' && letters == escapes:
		return `[\s\x1c-\x1f]`, 2
	case c == 'S' && letters == escapes:
		return `[^\s\x1c-\x1f]`, 2
	case c == 's':
		return `\s\x1c-\x1f`, 2
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		if strings.IndexByte(letters, c) < 0 {
			return "", 0
		}
	}
	return s[:2], 2
}

// classOf writes the class at the start of s, of n bytes; 0 if it does not end, or Python refuses
// it.
func classOf(s string) (text string, n int) {
	var b strings.Builder
	b.WriteByte('[')
	i := 1
	if strings.HasPrefix(s[i:], "^") {
		b.WriteByte('^')
		i++
	}
	for first := true; i < len(s); first = false {
		switch c := s[i]; {
		case c == ']' && !first:
			b.WriteByte(']')
			return b.String(), i + 1
		case c == '[' || c == ']':
			b.WriteString(`\` + string(c))
			i++
		case c == '\\':
			text, n := escaped(s[i:], classEscapes)
			if n == 0 {
				return "", 0
			}
			b.WriteString(text)
			i += n
		default:
			b.WriteByte(c)
			i++
		}
	}
	return "", 0
}
