package target

import (
	"context"
	"net/netip"
	"slices"

	"clustermaster/internal/fnmatch"
	"clustermaster/internal/pyregex"
	"clustermaster/wire"
)

// set is a set of minion ids.
type set map[string]bool

func (s set) ids() []string {
	out := make([]string, 0, len(s))
	for id := range s {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func and(a, b set) set {
	out := make(set)
	for id := range a {
		if b[id] {
			out[id] = true
		}
	}
	return out
}

func or(a, b set) set {
	out := make(set, len(a)+len(b))
	for id := range a {
		out[id] = true
	}
	for id := range b {
		out[id] = true
	}
	return out
}

func without(a, b set) set {
	out := make(set)
	for id := range a {
		if !b[id] {
			out[id] = true
		}
	}
	return out
}

// matching is one call of Match: expressions register what they ask of grains and pillar, and one pass over each
// answers all of them.
type matching struct {
	src     Source
	greedy  bool
	all     set
	grains  []*dataTerm
	pillar  []*dataTerm
	missing []string
	// incomplete is what a Source said of grains, or else of pillar.
	incomplete string
}

// expr is a part of a target. eval is called after resolve, once.
type expr interface{ eval() set }

// fixed is a part whose answer needs no cached data.
type fixed set

func (f fixed) eval() set { return set(f) }

// dataTerm is a part that asks about grains or pillar.
type dataTerm struct {
	test   func(wire.Map) bool
	absent set // ids that match if they have no data: the accepted ones of ipcidr
	hits   set
}

func (d *dataTerm) eval() set { return or(d.hits, d.absent) }

// accepted is the set of ids with an accepted key.
func (m *matching) accepted() set {
	if m.all == nil {
		ids := m.src.AcceptedIDs()
		m.all = make(set, len(ids))
		for _, id := range ids {
			m.all[id] = true
		}
	}
	return m.all
}

func (m *matching) where(test func(id string) bool) expr {
	out := make(set)
	for _, id := range m.src.AcceptedIDs() {
		if test(id) {
			out[id] = true
		}
	}
	return fixed(out)
}

// term makes the expression of one simple target type; nil for a type or an expression that matches nobody.
func (m *matching) term(tgtType, text, delimiter string) expr {
	switch tgtType {
	case "", "glob":
		return m.where(glob(text))
	case "pcre":
		test, ok := pyregex.Start(text)
		if !ok {
			return nil
		}
		return m.where(test)
	case "ipcidr":
		test, ok := inNetwork(text)
		if !ok {
			return nil
		}
		return m.data(&m.grains, test, true)
	case "grain", "grain_pcre":
		return m.data(&m.grains, deepMatcher(text, delimiter, kindOf(tgtType)), false)
	case "pillar", "pillar_pcre", "pillar_exact":
		return m.data(&m.pillar, deepMatcher(text, delimiter, kindOf(tgtType)), false)
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

// data registers a term. Without a data cache a master cannot know, so it waits for everybody that it may ask.
func (m *matching) data(terms *[]*dataTerm, test func(wire.Map) bool, keepAbsent bool) expr {
	if !m.src.DataCache() {
		if m.greedy {
			return fixed(m.accepted())
		}
		return fixed{}
	}
	d := &dataTerm{test: test, hits: make(set)}
	if keepAbsent && m.greedy {
		d.absent = without(m.accepted(), nil)
	}
	*terms = append(*terms, d)
	return d
}

// resolve answers the registered terms.
func (m *matching) resolve(ctx context.Context) error {
	each := func(terms []*dataTerm) func(string, wire.Map) {
		return func(id string, data wire.Map) {
			if m.greedy && !m.accepted()[id] {
				return
			}
			for _, t := range terms {
				delete(t.absent, id)
				if t.test(data) {
					t.hits[id] = true
				}
			}
		}
	}
	for _, part := range []struct {
		terms []*dataTerm
		read  func(context.Context, func(string, wire.Map)) (string, error)
	}{{m.grains, m.src.EachGrains}, {m.pillar, m.src.EachPillar}} {
		if len(part.terms) == 0 {
			continue
		}
		incomplete, err := part.read(ctx, each(part.terms))
		if err != nil {
			return err
		}
		if m.incomplete == "" {
			m.incomplete = incomplete
		}
	}
	return nil
}

// glob is the test of a shell pattern.
func glob(pattern string) func(string) bool {
	return func(s string) bool { return fnmatch.Match(pattern, s) }
}

// inNetwork is the test of an ipcidr target: an address, or a network without host bits.
func inNetwork(text string) (func(wire.Map) bool, bool) {
	addr, err := netip.ParseAddr(text)
	net, netErr := netip.ParsePrefix(text)
	switch {
	case err == nil:
	case netErr == nil && net == net.Masked():
	default:
		return nil, false
	}
	return func(grains wire.Map) bool {
		grain := "ipv4"
		if (err == nil && addr.Is6()) || (err != nil && net.Addr().Is6()) {
			grain = "ipv6"
		}
		v, _ := grains.Get(grain)
		list, _ := asList(v)
		for _, s := range list {
			a, e := netip.ParseAddr(s)
			if e == nil && ((err == nil && a == addr) || (err != nil && net.Contains(a))) {
				return true
			}
		}
		return false
	}, true
}
