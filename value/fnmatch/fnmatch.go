// Package fnmatch matches names with shell globs as Python's fnmatch does: * and ? take any
// character, "/" included, and a class is negated by "!".
//
// Go's path.Match differs in all three, so it can't stand in for the globs of Salt users.
package fnmatch

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Match reports whether the whole of name matches pattern, with regard to case. A "[" without a "]"
// is a plain character. The time is bounded by len(pattern) * len(name).
func Match(pattern, name string) bool {
	// Remembering the last star is enough: what an earlier one could match, a later one can match
	// too.
	star, retry := -1, 0
	last := strings.LastIndexByte(pattern, ']')
	p, n := 0, 0
	for n < len(name) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				star, retry = p, n
				p++
				continue
			}
			if pNext, nNext, ok := one(pattern, p, last, name, n); ok {
				p, n = pNext, nNext
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, size := utf8.DecodeRuneInString(name[retry:])
		retry += size
		p, n = star+1, retry
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Magic reports whether a pattern has a glob character.
func Magic(pattern string) bool { return strings.ContainsAny(pattern, "*?[") }

// one matches one character of name at n with the element of pattern at p, which is not a star. The
// last "]" of pattern is at last.
func one(pattern string, p, last int, name string, n int) (pNext, nNext int, ok bool) {
	r, size := utf8.DecodeRuneInString(name[n:])
	switch pattern[p] {
	case '?':
		return p + 1, n + size, true
	case '[':
		if p > last { // spares the search
			break
		}
		if end := classEnd(pattern, p); end > 0 {
			return end + 1, n + size, inClass(pattern[p+1:end], r)
		}
	}
	want, width := utf8.DecodeRuneInString(pattern[p:])
	return p + width, n + size, want == r && (r != utf8.RuneError || pattern[p] == name[n])
}

// classEnd is the position of the "]" that ends the class at p, or 0. A "]" right after "[" or "[!"
// belongs to the class.
func classEnd(pattern string, p int) int {
	i := p + 1
	if i < len(pattern) && pattern[i] == '!' {
		i++
	}
	if i < len(pattern) && pattern[i] == ']' {
		i++
	}
	if j := strings.IndexByte(pattern[min(i, len(pattern)):], ']'); j >= 0 {
		return i + j
	}
	return 0
}

func inClass(class string, r rune) bool {
	if found, ok := inPlainClass(class, r); ok {
		return found
	}
	return inAnyClass(class, r)
}

func inAnyClass(class string, r rune) bool {
	members := []rune(class)
	if strings.Contains(class, "-") {
		members = ranges(members)
	}
	if len(members) == 0 {
		return false
	}
	negated := members[0] == '!'
	if negated {
		members = members[1:]
	}
	found := false
	for i := 0; i < len(members); i++ {
		if i+2 < len(members) && members[i+1] == isRange {
			if members[i] <= r && r <= members[i+2] {
				found = true
			}
			i += 2
			continue
		}
		if members[i] == r {
			found = true
		}
	}
	return found != negated
}

// inPlainClass is inClass for classes of ASCII characters and full ranges; ok is false for others.
func inPlainClass(class string, r rune) (found, ok bool) {
	chars, negated := strings.CutPrefix(class, "!")
	for i := 0; i < len(chars); i++ {
		low, high := chars[i], chars[i]
		if i+2 < len(chars) && chars[i+1] == '-' {
			i += 2
			high = chars[i]
		}
		if low == '-' || high == '-' || low > high || max(low, high) >= utf8.RuneSelf {
			return false, false
		}
		found = found || rune(low) <= r && r <= rune(high)
	}
	return found != negated, true
}

// isRange stands between the ends of a range in what ranges returns.
const isRange rune = -1

// ranges tells the hyphens that make ranges from those that are characters. Like Python it cuts an
// empty range (z-a) out of the class together with its ends; what is left of "[0- !]" is "!", which
// then negates.
func ranges(class []rune) []rune {
	var chunks [][]rune
	start, from := 0, 1
	if class[0] == '!' {
		from = 2
	}
	for from < len(class) {
		at := slices.Index(class[from:], '-')
		if at < 0 {
			break
		}
		at += from
		chunks = append(chunks, slices.Clone(class[start:at]))
		start, from = at+1, at+3
	}
	if start < len(class) {
		chunks = append(chunks, slices.Clone(class[start:]))
	} else {
		last := len(chunks) - 1
		chunks[last] = append(chunks[last], '-')
	}
	for k := len(chunks) - 1; k > 0; k-- {
		before, after := chunks[k-1], chunks[k]
		if before[len(before)-1] > after[0] {
			chunks[k-1] = append(before[:len(before)-1], after[1:]...)
			chunks = slices.Delete(chunks, k, k+1)
		}
	}
	out := chunks[0]
	for _, c := range chunks[1:] {
		out = append(append(out, isRange), c...)
	}
	return out
}

// Filter returns the names that match, as Python's fnmatch.filter does. The names are sorted.
func Filter(names []string, pattern string) []string {
	if !Magic(pattern) {
		if _, ok := slices.BinarySearch(names, pattern); ok {
			return []string{pattern}
		}
		return nil
	}
	var out []string
	for _, name := range names {
		if Match(pattern, name) {
			out = append(out, name)
		}
	}
	return out
}
