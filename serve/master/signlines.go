package master

import (
	"strings"
	"sync"
	"unicode/utf8"

	"clustermaster/salt/target"
)

// maxCompiled bounds the expressions of a file that are kept compiled, at some 10 KB each. Further
// ones are compiled for each id.
const maxCompiled = 1000

// signLines are the lines of a file in forms that are quick to match: each sign-in asks, strangers'
// too. They are safe for concurrent use.
type signLines struct {
	compile  func(expr string) func(id string) bool
	all      map[string]struct{}
	dotted   map[int][]string // by length: ids with dots, each of which stands for any character
	patterns []*signPattern   // all others that are more than an id
}

type signPattern struct {
	line    string
	compile func(expr string) func(id string) bool
	kept    bool // compiled after the first use

	mu   sync.Mutex        // guards test
	test func(string) bool // nil before the first use
}

func newSignLines(compile func(expr string) func(id string) bool) *signLines {
	return &signLines{compile: compile, all: map[string]struct{}{}, dotted: map[int][]string{}}
}

// add adds a line.
func (l *signLines) add(line string) {
	if _, twice := l.all[line]; twice {
		return
	}
	l.all[line] = struct{}{}
	switch {
	case strings.ContainsFunc(line, magic):
		l.patterns = append(l.patterns,
			&signPattern{line: line, compile: l.compile, kept: len(l.patterns) < maxCompiled})
	case strings.Contains(line, "."):
		l.dotted[len(line)] = append(l.dotted[len(line)], line)
	}
}

// magic reports whether a character may mean something other than itself in shell patterns or
// regular expressions. The dot is left to the caller.
func magic(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
		strings.ContainsRune(".-_@:", r))
}

// has reports whether a text is one of the lines.
func (l *signLines) has(text string) bool {
	if l == nil {
		return false
	}
	_, is := l.all[text]
	return is
}

// match reports whether a line means the id.
func (l *signLines) match(id string) bool {
	if l == nil {
		return false
	}
	if l.has(id) {
		return true
	}
	for _, line := range l.dotted[utf8.RuneCountInString(id)] {
		if dotsMatch(line, id) {
			return true
		}
	}
	for _, p := range l.patterns {
		if target.Glob(p.line, id) || p.full(id) {
			return true
		}
	}
	return false
}

// dotsMatch matches an id with a line of as many characters, which are ASCII.
func dotsMatch(line, id string) bool {
	i := 0
	for _, r := range id {
		if line[i] != '.' && rune(line[i]) != r || r == '\n' {
			return false
		}
		i++
	}
	return true
}

// full matches the id with the regular expression.
func (p *signPattern) full(id string) bool {
	if !p.kept || !p.mu.TryLock() { // a text on which it takes long must not delay others
		return p.compile(p.line)(id)
	}
	defer p.mu.Unlock()
	if p.test == nil {
		p.test = p.compile(p.line)
	}
	return p.test(id)
}
