package target

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
)

// Source tells matching about the minions.
type Source interface {
	// AcceptedIDs are the ids with an accepted key, sorted. Callers must not change the slice.
	AcceptedIDs() []string
	// Ask calls fn, one call at a time, with each minion that has cached data and the terms of q
	// that hold for it. It may call fn more than once for a minion if q asks about grains and about
	// pillar. It may leave out minions for which no term holds, and minions outside q.IDs.
	// incomplete says how much could not be read ("incomplete: 3 of 256 partitions"), or is "".
	Ask(ctx context.Context, q Question, fn func(id string, hits Hits)) (incomplete string,
		err error)
	Groups
	// DataCache is the option minion_data_cache.
	DataCache() bool
}

// Groups tells matching about nodegroups.
type Groups interface {
	// Nodegroup is the definition of a nodegroup: text, or a list ([]any or []string).
	Nodegroup(name string) (definition any, ok bool)
}

// Result lists the minions that a target means.
type Result struct {
	Minions []string // sorted, except that a list target keeps its order
	Missing []string // ids of list targets that have no accepted key
	// Incomplete is not empty if minions may be missing because their grains or pillar could not be
	// read; it says how much.
	Incomplete string
}

// maxExpression bounds a target in bytes; a list of 10 000 long ids fits.
const maxExpression = 1 << 20

// Match resolves tgt, which is text or a list of text. An empty tgtType is glob, an empty delimiter
// is ":". With greedy it asks about all accepted keys, as publishing does; without, only about
// minions with cached data, as the mine does.
func Match(ctx context.Context, tgtType string, tgt any, delimiter string, src Source,
	greedy bool) (Result, error) {
	return newMatching(src, greedy).match(ctx, tgtType, tgt, delimiter)
}

// MatchMinions is Match for a target that a minion gave; its limits are lower, see ErrTooCostly.
func MatchMinions(ctx context.Context, tgtType string, tgt any, src Source, greedy bool) (Result,
	error) {
	m := newMatching(src, greedy)
	m.most = ofMinions
	return m.match(ctx, tgtType, tgt, "")
}

// Certain is a greedy Match that leaves out the minions whose match is unknown: those without the
// data that the target asks for, or all if that data could not be read, is not kept, or is a range
// server's. The master resolves rights with it, and what it sends within them.
func Certain(ctx context.Context, tgtType string, tgt any, delimiter string, src Source) (Result,
	error) {
	m := newMatching(src, true)
	m.certain = true
	return m.match(ctx, tgtType, tgt, delimiter)
}

// CertainMinions is Certain with the limits of MatchMinions.
func CertainMinions(ctx context.Context, tgtType string, tgt any, src Source) (Result, error) {
	m := newMatching(src, true)
	m.certain, m.most = true, ofMinions
	return m.match(ctx, tgtType, tgt, "")
}

func (m *matching) match(ctx context.Context, tgtType string, tgt any, delimiter string) (Result,
	error) {
	if delimiter == "" {
		delimiter = value.Delimiter
	}
	if size(tgt) > maxExpression {
		return Result{}, nil
	}
	text, isText := tgt.(string)
	if tgt == nil {
		isText = true
	}
	var e expr
	switch tgtType {
	case "compound", "compound_pillar_exact":
		words, ok := asWords(tgt)
		if !ok {
			return Result{}, nil
		}
		if len(words) > m.most.words {
			return Result{}, fmt.Errorf("match a target of %d words, at most %d: %w", len(words),
				m.most.words, ErrTooCostly)
		}
		e = m.compound(words, tgtType == "compound_pillar_exact")
	case "nodegroup":
		if !isText {
			return Result{}, nil
		}
		e = m.compound(expandNodegroup(m.src, text), false)
	case "list":
		ids, ok := asList(tgt)
		if !ok {
			return Result{}, nil
		}
		return m.list(ids), nil
	default:
		if !isText {
			return Result{}, nil
		}
		e = m.term(tgtType, text, delimiter)
	}
	if e == nil {
		return Result{}, nil
	}
	if m.spent() {
		return Result{}, fmt.Errorf("match %s target: %w", tgtType, ErrTooCostly)
	}
	if err := m.resolve(ctx, e); err != nil {
		return Result{}, fmt.Errorf("match %s target: %w", tgtType, err)
	}
	found := e.eval(m)
	if m.certain {
		found, _ = e.bounds(m)
	}
	return Result{Minions: m.names(found), Missing: m.missing, Incomplete: m.incomplete}, nil
}

// Means reports whether a target that a minion gave, not greedy, certainly means the minion id. It
// asks only about that minion's data; incomplete is that of Result, and then the answer is no.
func Means(ctx context.Context, tgtType string, tgt any, src Source, id string) (means bool,
	incomplete string, err error) {
	found, err := MatchMinions(ctx, tgtType, tgt, only{src, id}, false)
	means = err == nil && found.Incomplete == "" && slices.Contains(found.Minions, id)
	return means, found.Incomplete, err
}

// only is a Source that has one minion of another Source.
type only struct {
	Source
	id string
}

func (o only) AcceptedIDs() []string {
	if _, ok := slices.BinarySearch(o.Source.AcceptedIDs(), o.id); !ok {
		return nil
	}
	return []string{o.id}
}

func (o only) Ask(ctx context.Context, q Question, fn func(id string, hits Hits)) (string, error) {
	q.IDs = []string{o.id}
	return o.Source.Ask(ctx, q, fn)
}

// Named returns how many minions a target names by their ids, or -1 if the target must be matched.
// Matching a target that names ids costs no more than reading it.
func Named(tgtType string, tgt any) int {
	switch tgtType {
	case "list":
		if ids, ok := asList(tgt); ok && size(tgt) <= maxExpression {
			return len(ids)
		}
	}
	return -1
}

// list keeps the order and drops repeated ids.
func (m *matching) list(ids []string) Result {
	var r Result
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		if _, ok := m.number(id); ok {
			r.Minions = append(r.Minions, id)
		} else {
			r.Missing = append(r.Missing, id)
		}
	}
	return r
}

// asList takes a list, or text with commas.
func asList(tgt any) ([]string, bool) {
	switch t := tgt.(type) {
	case nil:
		return nil, true
	case string:
		return slices.DeleteFunc(strings.Split(t, ","),
			func(s string) bool { return s == "" }), true
	case []string:
		return t, true
	case []any:
		out := make([]string, 0, len(t))
		for _, v := range t {
			out = append(out, value.Str(v))
		}
		return out, true
	}
	return nil, false
}

// asWords takes a compound expression: text with blanks, or a list of words.
func asWords(tgt any) ([]string, bool) {
	if s, ok := tgt.(string); ok {
		return value.Fields(s), true
	}
	return asList(tgt)
}

func size(tgt any) int {
	n := 0
	switch t := tgt.(type) {
	case string:
		n = len(t)
	case []string:
		for _, s := range t {
			n += len(s) + 1
		}
	case []any:
		for _, v := range t {
			s, _ := v.(string)
			n += len(s) + 1
		}
	}
	return n
}
