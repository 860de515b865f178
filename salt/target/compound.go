package target

import (
	"regexp"
	"slices"
	"strings"

	"clustermaster/value"
)

// maxDepth bounds the nesting of a compound expression, maxWords its length with nodegroups written
// out.
const (
	maxDepth = 500
	maxWords = 20_000
)

// word splits one word of a compound expression: an engine letter, for path engines a delimiter,
// and a pattern.
var word = regexp.MustCompile(`^(?s:([GPIJ])(.)?@|([LNSERTM])@)(.+)$`)

func isOperator(w string) bool {
	switch w {
	case "and", "or", "not", "(", ")":
		return true
	}
	return false
}

// compound parses words into an expression, nil if it is invalid. The grammar, loosest first:
//
//	or  = and { "or" and }
//	and = not { ["and"] not }      a missing "and" only before "not"
//	not = "not" atom | atom
//	atom = "(" or ")" | word       the last ")" may be missing
func (m *matching) compound(words []string, exact bool) expr {
	words, ok := writeOut(m.src, words)
	if !ok {
		return nil
	}
	p := &parser{m: m, words: words, exact: exact}
	e := p.or(0)
	if e == nil || p.failed || p.at < len(p.words) {
		return nil
	}
	return e
}

// writeOut replaces the nodegroups among words by their definitions.
func writeOut(src Groups, words []string) ([]string, bool) {
	if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "N@") }) {
		return words, len(words) <= maxWords
	}
	var out []string
	for _, w := range words {
		if name, ok := groupOf(w); ok {
			out = append(out, expandNodegroup(src, name)...)
		} else {
			out = append(out, w)
		}
		if len(out) > maxWords {
			return nil, false
		}
	}
	return out, true
}

type parser struct {
	m      *matching
	words  []string
	at     int
	exact  bool
	failed bool
}

func (p *parser) peek() string {
	if p.at < len(p.words) {
		return p.words[p.at]
	}
	return ""
}

func (p *parser) fail() expr {
	p.failed = true
	return nil
}

// either, both and except join two parts.
type (
	either struct{ a, b expr }
	both   struct{ a, b expr }
	except struct{ a, b expr } // a, and not b
)

func (x either) eval(m *matching) set { return or(x.a.eval(m), x.b.eval(m)) }
func (x both) eval(m *matching) set   { return and(x.a.eval(m), x.b.eval(m)) }
func (x except) eval(m *matching) set { return without(x.a.eval(m), x.b.eval(m)) }

func (x either) bounds(m *matching) (sure, possible set) {
	aSure, aPossible := x.a.bounds(m)
	bSure, bPossible := x.b.bounds(m)
	return or(aSure, bSure), or(aPossible, bPossible)
}

func (x both) bounds(m *matching) (sure, possible set) {
	aSure, aPossible := x.a.bounds(m)
	bSure, bPossible := x.b.bounds(m)
	return and(aSure, bSure), and(aPossible, bPossible)
}

func (x except) bounds(m *matching) (sure, possible set) {
	aSure, aPossible := x.a.bounds(m)
	bSure, bPossible := x.b.bounds(m)
	return without(aSure, bPossible), without(aPossible, bSure)
}

func (p *parser) or(depth int) expr {
	left := p.and(depth)
	for !p.failed && p.peek() == "or" {
		p.at++
		left = either{left, p.and(depth)}
	}
	if p.failed {
		return nil
	}
	return left
}

func (p *parser) and(depth int) expr {
	left := p.not(depth)
	for !p.failed && (p.peek() == "and" || p.peek() == "not") {
		if p.peek() == "and" {
			p.at++
		}
		left = both{left, p.not(depth)}
	}
	if p.failed {
		return nil
	}
	return left
}

func (p *parser) not(depth int) expr {
	if p.peek() != "not" {
		return p.atom(depth, false)
	}
	p.at++
	inner := p.atom(depth, true)
	if p.failed {
		return nil
	}
	return except{fixed(p.m.accepted()), inner}
}

func (p *parser) atom(depth int, negated bool) expr {
	if p.at == len(p.words) || depth > maxDepth {
		return p.fail()
	}
	w := p.words[p.at]
	p.at++
	if w != "(" {
		if isOperator(w) {
			return p.fail()
		}
		return p.term(w, negated)
	}
	inner := p.or(depth + 1)
	switch {
	case p.failed:
		return nil
	case p.at == len(p.words):
	case p.words[p.at] == ")":
		p.at++
	default:
		return p.fail()
	}
	return inner
}

func (p *parser) term(w string, negated bool) expr {
	parts := word.FindStringSubmatch(w)
	if parts == nil {
		return p.m.where(glob(w))
	}
	engine, delimiter, pattern := parts[1]+parts[3], parts[2], parts[4]
	if delimiter == "" {
		delimiter = value.Delimiter
	}
	tgtType := ""
	switch engine {
	case "G":
		tgtType = "grain"
	case "P":
		tgtType = "grain_pcre"
	case "I":
		tgtType = "pillar"
	case "J":
		tgtType = "pillar_pcre"
	case "S":
		tgtType = "ipcidr"
	case "E":
		tgtType = "pcre"
	case "L":
		ids, _ := asList(pattern)
		r := p.m.list(ids)
		if !negated {
			p.m.missing = append(p.m.missing, r.Missing...)
		}
		var out set
		for _, id := range r.Minions {
			if n, ok := p.m.number(id); ok {
				out = out.add(n)
			}
		}
		return fixed(out)
	case "R": // no master asks a range server: any minion may be meant
		return unknown{}
	default: // T, M: resources, which no master knows
		if p.m.certain {
			return unknown{}
		}
		return fixed{}
	}
	if p.exact && (engine == "I" || engine == "J") {
		tgtType = "pillar_exact"
	}
	e := p.m.term(tgtType, pattern, delimiter)
	if e == nil {
		// An invalid regular expression spoils the whole target, an invalid network only its term.
		if engine == "E" {
			return p.fail()
		}
		return fixed{}
	}
	return e
}
