package target

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// Bounds of one pattern.
const (
	maxPattern   = 64 << 10               // bytes
	regexTimeout = 100 * time.Millisecond // per text; backtracking patterns are easily endless
	regexBudget  = 2 * time.Second        // per pattern, over all texts of one Match
)

// fnmatch returns the test of a shell pattern as Python's fnmatch.fnmatchcase: * ? [seq] [!seq], the rest literally.
// It runs in time proportional to pattern times text.
func fnmatch(pattern string) func(string) bool {
	if !strings.ContainsAny(pattern, "*?[") {
		return func(s string) bool { return s == pattern }
	}
	if len(pattern) > maxPattern {
		return func(string) bool { return false }
	}
	parts := parseGlob(pattern)
	return func(s string) bool { return globMatch(parts, s) }
}

// Glob reports whether s matches the shell pattern, as Python's fnmatch.fnmatchcase says.
func Glob(pattern, s string) bool { return fnmatch(pattern)(s) }

// globPart is one element of a shell pattern.
type globPart struct {
	star   bool
	any    bool // ?
	lit    rune
	set    []runeRange // [...]
	isSet  bool
	negate bool
}

type runeRange struct{ lo, hi rune }

func parseGlob(pattern string) []globPart {
	rs := []rune(pattern)
	var out []globPart
	for i := 0; i < len(rs); i++ {
		switch rs[i] {
		case '*':
			if len(out) == 0 || !out[len(out)-1].star {
				out = append(out, globPart{star: true})
			}
		case '?':
			out = append(out, globPart{any: true})
		case '[':
			end := i + 1
			if end < len(rs) && rs[end] == '!' {
				end++
			}
			if end < len(rs) && rs[end] == ']' {
				end++
			}
			for end < len(rs) && rs[end] != ']' {
				end++
			}
			if end >= len(rs) { // no closing bracket: a bracket stands for itself
				out = append(out, globPart{lit: '['})
				continue
			}
			out = append(out, parseSet(rs[i+1:end]))
			i = end
		default:
			out = append(out, globPart{lit: rs[i]})
		}
	}
	return out
}

func parseSet(rs []rune) globPart {
	p := globPart{isSet: true}
	if len(rs) > 0 && rs[0] == '!' {
		p.negate = true
		rs = rs[1:]
	}
	for i := 0; i < len(rs); i++ {
		if i+2 < len(rs) && rs[i+1] == '-' {
			if rs[i] <= rs[i+2] { // a range that runs backwards is empty
				p.set = append(p.set, runeRange{rs[i], rs[i+2]})
			}
			i += 2
			continue
		}
		p.set = append(p.set, runeRange{rs[i], rs[i]})
	}
	return p
}

func (p globPart) matches(r rune) bool {
	switch {
	case p.any:
		return true
	case !p.isSet:
		return p.lit == r
	}
	for _, rr := range p.set {
		if rr.lo <= r && r <= rr.hi {
			return !p.negate
		}
	}
	return p.negate
}

// globMatch goes back to the last star only, which is enough and keeps it from exploding.
func globMatch(parts []globPart, s string) bool {
	pi, si := 0, 0
	starPart, starText := -1, 0
	for si < len(s) {
		r, n := utf8.DecodeRuneInString(s[si:])
		switch {
		case pi < len(parts) && parts[pi].star:
			starPart, starText = pi, si
			pi++
		case pi < len(parts) && parts[pi].matches(r):
			pi++
			si += n
		case starPart >= 0:
			_, m := utf8.DecodeRuneInString(s[starText:])
			starText += m
			pi, si = starPart+1, starText
		default:
			return false
		}
	}
	for pi < len(parts) && parts[pi].star {
		pi++
	}
	return pi == len(parts)
}

// anchored returns the test of a regular expression as Python's re.match: anchored at the start, not at the end. ok is
// false if it does not compile. A text on which it takes too long does not match.
func anchored(pattern string) (test func(string) bool, ok bool) {
	if len(pattern) > maxPattern {
		return nil, false
	}
	re, err := regexp2.Compile(pythonRegex(pattern), regexp2.None)
	if err != nil {
		return nil, false
	}
	re.MatchTimeout = regexTimeout
	var spent time.Duration
	return func(s string) bool {
		if spent > regexBudget {
			return false
		}
		began := time.Now()
		found, err := re.MatchString(s)
		spent += time.Since(began)
		return err == nil && found
	}, true
}

// MatchStart reports whether the start of s matches the regular expression, as Python's re.match says. An expression
// that does not compile matches nothing.
func MatchStart(pattern, s string) bool {
	test, ok := anchored(pattern)
	return ok && test(s)
}

// MatchFull reports whether all of s matches the regular expression, as Python's re.fullmatch says.
func MatchFull(pattern, s string) bool {
	test, ok := anchored("(?:" + pattern + `)\Z`)
	return ok && test(s)
}

// pythonRegex writes a Python expression in the dialect of regexp2 (.NET): anchored at the start, (?P<n>..) and (?P=n)
// as (?<n>..) and \k<n>, and \Z, which is the very end in Python, as \z.
func pythonRegex(p string) string {
	var b strings.Builder
	b.WriteString(`\G(?:`)
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == '\\' && i+1 < len(p):
			if p[i+1] == 'Z' {
				b.WriteString(`\z`)
			} else {
				b.WriteString(p[i : i+2])
			}
			i++
		case strings.HasPrefix(p[i:], "(?P<"):
			b.WriteString("(?<")
			i += len("(?P<") - 1
		case strings.HasPrefix(p[i:], "(?P="):
			end := strings.IndexByte(p[i:], ')')
			if end < 0 {
				b.WriteByte(p[i])
				continue
			}
			b.WriteString(`\k<` + p[i+len("(?P="):i+end] + `>`)
			i += end
		default:
			b.WriteByte(p[i])
		}
	}
	b.WriteByte(')')
	return b.String()
}
