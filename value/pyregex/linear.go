package pyregex

import (
	"regexp"
	"strings"
)

// printable reports whether a text has only characters for which classes, boundaries and the end
// mean the same in Python and in Go.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

var (
	repeat = regexp.MustCompile(`^\{(0|[1-9][0-9]{0,2})(,(0|[1-9][0-9]{0,2})?)?\}`)
	group  = regexp.MustCompile(`^\(\?(:|P<[A-Za-z_][A-Za-z0-9_]*>)`)
)

// sameEscapes may follow a backslash and mean the same in both, besides punctuation.
const sameEscapes = "dDwWsS"

// linear reports whether an expression means the same in Python and in Go's regexp, on printable
// texts. It recognizes the common ones. It returns false for others, and for what Go's regexp can't
// do (looking around, references, possessive repeats).
func linear(expr string) bool {
	if !printable(expr) {
		return false
	}
	expr = strings.TrimPrefix(expr, "(?i)")
	for i := 0; i < len(expr); {
		n := 1
		switch expr[i] {
		case '\\':
			n = escape(expr[i:], sameEscapes+"bB")
		case '[':
			n = class(expr[i:])
		case '{':
			n = len(repeat.FindString(expr[i:]))
		case '(':
			if strings.HasPrefix(expr[i:], "(?") {
				n = len(group.FindString(expr[i:]))
			}
		}
		if n == 0 {
			return false
		}
		i += n
	}
	return true
}

// escape returns the length of an escape at the start of s, 0 if its meaning may differ.
func escape(s, letters string) int {
	switch {
	case len(s) < 2:
		return 0
	case strings.IndexByte(letters, s[1]) >= 0,
		strings.IndexByte("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", s[1]) >= 0:
		return 2
	}
	return 0
}

// class returns the length of a class at the start of s, 0 if its meaning may differ.
func class(s string) int {
	i := 1
	if strings.HasPrefix(s, "[^") {
		i = 2
	}
	for first := i; i < len(s); {
		switch s[i] {
		case ']':
			if i == first { // a bracket in the class
				return 0
			}
			return i + 1
		case '[', '&', '~', '|': // names of classes; operators of sets
			return 0
		case '\\':
			n := escape(s[i:], sameEscapes)
			if n == 0 || strings.HasPrefix(s[i+n:], "-") { // a range that begins with it
				return 0
			}
			i += n
		case '-':
			if strings.HasPrefix(s[i+1:], "\\") || strings.HasPrefix(s[i+1:], "-") {
				return 0
			}
			i++
		default:
			i++
		}
	}
	return 0
}
