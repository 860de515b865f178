package target

import (
	"context"
	"runtime"
	"slices"

	"clustermaster/value/fnmatch"
	"clustermaster/value/pyregex"
)

// matching is one call of Match. Expressions register what they ask of grains and pillar, and one
// question to the Source answers them all.
type matching struct {
	cost
	src      Source
	greedy   bool
	certain  bool     // leave out minions that only may match: see Certain
	answered bool     // the question has been asked
	ids      []string // ids with an accepted key, sorted: number to id
	// ids that have data but no accepted key, unless greedy; their numbers follow those of ids
	others     []string
	numbers    map[string]int // of others
	terms      []*dataTerm
	byTerm     map[Term]*dataTerm
	missing    []string
	incomplete string
}

func newMatching(src Source, greedy bool) *matching {
	return &matching{cost: newCost(), src: src, greedy: greedy, ids: src.AcceptedIDs(),
		numbers: map[string]int{}, byTerm: map[Term]*dataTerm{}}
}

// expr is a part of a target.
type expr interface {
	// bounds returns the minions with an accepted key that match in any case, and those that may
	// match. Before the question is asked it says what is known without data.
	bounds(m *matching) (sure, possible set)
	// eval returns the minions that match; it is called after the question is answered.
	eval(m *matching) set
}

// fixed is a part whose answer needs no cached data.
type fixed set

func (f fixed) bounds(*matching) (sure, possible set) { return set(f), set(f) }
func (f fixed) eval(*matching) set                    { return set(f) }

// unknown is a part that only the minions themselves can judge.
type unknown struct{}

func (unknown) bounds(m *matching) (sure, possible set) { return nil, m.accepted() }
func (unknown) eval(m *matching) set                    { return m.accepted() }

// dataTerm is a part that asks about grains or pillar.
type dataTerm struct {
	hits    set
	inverse bool      // the accepted ones that were not hit
	number  int       // among the terms
	misses  *dataTerm // of a certain matching: hit where data exists and does not match
}

func (d *dataTerm) bounds(m *matching) (sure, possible set) {
	if m.answered && d.misses != nil {
		return d.hits, without(m.accepted(), d.misses.hits)
	}
	return nil, m.accepted()
}

func (d *dataTerm) eval(m *matching) set {
	if d.inverse {
		return without(m.accepted(), d.hits)
	}
	return d.hits
}

// accepted is the set of minions with an accepted key.
func (m *matching) accepted() set { return firsts(len(m.ids)) }

// number finds the number of a minion with an accepted key.
func (m *matching) number(id string) (int, bool) { return slices.BinarySearch(m.ids, id) }

func (m *matching) where(test func(id string) bool) expr {
	out := make(set, (len(m.ids)+63)/64)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, work := pyregex.ThreadTime(), m.work
	for i, id := range m.ids {
		if i%lookEvery == 0 {
			if m.work = work + pyregex.ThreadTime() - began; m.spent() {
				break
			}
		}
		if test(id) {
			out = out.add(i)
		}
	}
	m.work = work + pyregex.ThreadTime() - began
	return fixed(out)
}

// term makes the expression of one simple target type, or nil for an unknown type or an expression
// that matches no minion.
func (m *matching) term(tgtType, text, delimiter string) expr {
	switch tgtType {
	case "", "glob":
		return m.where(glob(text))
	case "pcre":
		test, ok := pyregex.StartIn(m.regex, text)
		if !ok {
			return nil
		}
		return m.where(test)
	case "ipcidr":
		if _, _, ok := inNetwork(text); !ok {
			return nil
		}
		// Greedy: a minion without data may be meant, so the question asks which ones are not.
		return m.data(Term{Kind: tgtType, Text: text, Unless: m.greedy && !m.certain})
	case "grain", "grain_pcre", "pillar", "pillar_pcre", "pillar_exact":
		return m.data(Term{Kind: tgtType, Text: text, Delimiter: delimiter})
	}
	return nil
}

func kindOf(tgtType string) leafKind {
	switch tgtType {
	case "grain_pcre", "pillar_pcre":
		return leafRegex
	case "pillar_exact":
		return leafExact
	}
	return leafGlob
}

// data registers a term. Without a data cache a master can't judge, so it waits for every minion
// that it may ask.
func (m *matching) data(t Term) expr {
	if !m.src.DataCache() {
		if m.greedy {
			return unknown{}
		}
		return fixed{}
	}
	d := m.ask(t)
	if m.certain {
		t.Unless = true
		d.misses = m.ask(t)
	}
	return d
}

func (m *matching) ask(t Term) *dataTerm {
	d := m.byTerm[t]
	if d == nil {
		d = &dataTerm{inverse: t.Unless, number: len(m.terms)}
		m.byTerm[t] = d
		m.terms = append(m.terms, d)
	}
	return d
}

// fewIDs is the largest number of minions that a question lists by id; for more it asks about all.
const fewIDs = 256

// resolve asks the question that the terms of e make.
func (m *matching) resolve(ctx context.Context, e expr) error {
	if len(m.terms) == 0 {
		return nil
	}
	q := Question{Terms: make([]Term, len(m.terms))}
	for t, d := range m.byTerm {
		q.Terms[d.number] = t
	}
	if m.greedy {
		sure, possible := e.bounds(m)
		open := without(possible, sure)
		n := open.len()
		if n == 0 {
			return nil
		}
		if n <= fewIDs && n < len(m.ids) {
			open.each(func(i int) { q.IDs = append(q.IDs, m.ids[i]) })
		}
	}
	ctx, cancel := context.WithTimeout(ctx, m.most.wait)
	defer cancel()
	incomplete, err := m.src.Ask(ctx, q, func(id string, hits Hits) {
		n, ok := m.number(id)
		if !ok {
			if m.greedy {
				return
			}
			if n, ok = m.numbers[id]; !ok {
				n = len(m.ids) + len(m.others)
				m.others = append(m.others, id)
				m.numbers[id] = n
			}
		}
		for i, d := range m.terms {
			if hits.Has(i) {
				d.hits = d.hits.add(n)
			}
		}
	})
	m.incomplete, m.answered = incomplete, true
	return err
}

// names returns the ids of a set, sorted.
func (m *matching) names(s set) []string {
	out := make([]string, 0, s.len())
	s.each(func(i int) {
		if i < len(m.ids) {
			out = append(out, m.ids[i])
		} else {
			out = append(out, m.others[i-len(m.ids)])
		}
	})
	if len(m.others) > 0 {
		slices.Sort(out)
	}
	return out
}

// glob makes the test of a shell pattern.
func glob(pattern string) func(string) bool {
	return func(s string) bool { return fnmatch.Match(pattern, s) }
}
