package pyregex

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// refused is an expression that regexp2 does not compile. It replaces expressions that Python
// refuses, so that they have no other meaning here.
const refused = "("

var (
	// openRepeat is a repeat without a lower bound, which .NET reads as text.
	openRepeat = regexp.MustCompile(`^\{,([0-9]*)\}`)
	repeats    = regexp.MustCompile(`^(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\}|\{,[0-9]*\})`)
	anchors    = regexp.MustCompile(`^(?:[$^]|\\[AbBZ])$`)
	// groups are the forms of groups that both support, and the flags that mean the same in both.
	groups = regexp.MustCompile(`^\(\?(?:[:=!#>(]|<[=!]|[imsxu]+\)|[imsxu]*(?:-[imsx]+)?:)`)
	named  = regexp.MustCompile(`^\(\?P<([A-Za-z_][A-Za-z0-9_]*)>`)
	again  = regexp.MustCompile(`^\(\?P=([A-Za-z_][A-Za-z0-9_]*)\)`)
)

// Letters that may follow a backslash in Python and mean the same in both, outside and inside
// classes.
const (
	escapes      = "abBAdDfnrsStuvwWx"
	classEscapes = "abdDfnrsStuvwWx"
)

// dialect translates a Python expression to the dialect of regexp2 (.NET): groups by their names,
// \Z, which is the very end, as \z, {,n} as {0,n}, brackets in classes escaped, because they
// subtract classes there, and blanks with U+001C to U+001F. It refuses what Python refuses, or what
// only Python's newest releases accept.
func dialect(p string) string {
	var b strings.Builder
	var so groupsSoFar
	anchor := false // the previous element is one, which Python does not repeat
	for i := 0; i < len(p); {
		if anchor && repeats.MatchString(p[i:]) {
			return refused
		}
		text, n := p[i:i+1], 1
		switch p[i] {
		case '\\':
			if text, n = so.number(p[i:]); n == 0 {
				text, n = escaped(p[i:], escapes)
			}
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
			so.open(p[i : i+n])
		case ')':
			so.close()
		}
		if n <= 0 {
			return refused
		}
		b.WriteString(text)
		if text != "" {
			anchor = anchors.MatchString(p[i : i+n])
		}
		i += n
	}
	return b.String()
}

// groupsSoFar are the groups to the left of a position in an expression. Python numbers them all in
// their order, regexp2 first numbers those without a name.
type groupsSoFar struct {
	refs    []string // how regexp2 refers to each group
	unnamed int
	nested  []int // the open groups: a number in refs, from 1, or 0 for an uncounted group
}

// open notes the beginning of a group, as Python writes it.
func (g *groupsSoFar) open(text string) {
	switch m := named.FindStringSubmatch(text); {
	case text == "(":
		g.unnamed++
		g.refs = append(g.refs, `(?:\`+strconv.Itoa(g.unnamed)+")")
	case m != nil:
		g.refs = append(g.refs, `\k<`+m[1]+">")
	case strings.HasSuffix(text, ")") || text == "": // flags, a reference, a comment
		return
	default:
		g.nested = append(g.nested, 0)
		return
	}
	g.nested = append(g.nested, len(g.refs))
}

func (g *groupsSoFar) close() {
	if len(g.nested) > 0 {
		g.nested = g.nested[:len(g.nested)-1]
	}
}

// number translates the escape of a backslash and digits at the start of s, n bytes long: a letter
// by its octal number, or a reference. n is 0 if s does not begin with such an escape, and negative
// if Python refuses it, such as a reference to a group that is open or has not begun.
func (g *groupsSoFar) number(s string) (text string, n int) {
	if len(s) < 2 || s[1] < '0' || s[1] > '9' {
		return "", 0
	}
	if text, n := octal(s); n != 0 {
		return text, n
	}
	n = 2
	if len(s) > 2 && s[2] >= '0' && s[2] <= '9' {
		n = 3
	}
	ref, _ := strconv.Atoi(s[1:n])
	if ref > len(g.refs) || slices.Contains(g.nested, ref) {
		return "", -1
	}
	return g.refs[ref-1], n
}

// octal translates a letter by its octal number: a zero and up to two digits, or three digits.
func octal(s string) (text string, n int) {
	end := 1
	for end < len(s) && end < 4 && s[end] >= '0' && s[end] <= '7' {
		end++
	}
	if end == 1 || s[1] != '0' && end < 4 {
		return "", 0
	}
	return letter(s[1:end], end)
}

// numberInClass is number in a class, where one to three octal digits are a letter.
func numberInClass(s string) (text string, n int) {
	end := 1
	for end < len(s) && end < 4 && s[end] >= '0' && s[end] <= '7' {
		end++
	}
	if end == 1 {
		if len(s) > 1 && (s[1] == '8' || s[1] == '9') {
			return "", -1
		}
		return "", 0
	}
	return letter(s[1:end], end)
}

// letter returns the letter of an octal number; n is negative if the number is above a byte's.
func letter(digits string, length int) (text string, n int) {
	v, _ := strconv.ParseUint(digits, 8, 16)
	if v > 0o377 {
		return "", -1
	}
	return fmt.Sprintf(`\x%02x`, v), length
}

// opened translates the beginning of a special group at the start of s, n bytes long; n is 0 if
// Python refuses it.
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
	if on, off, _ := strings.Cut(m[len("(?"):], "-"); strings.ContainsAny(off, on) {
		return "", 0 // turned on and off
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

// escaped translates the escape at the start of s, n bytes long; n is 0 if Python refuses it.
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

// classOf translates the class at the start of s, n bytes long; n is 0 if the class does not end,
// or Python refuses it.
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
			text, n := numberInClass(s[i:])
			if n == 0 {
				text, n = escaped(s[i:], classEscapes)
			}
			if n <= 0 {
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
