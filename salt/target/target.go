package target

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
)

// Source is what matching needs to know of the minions.
type Source interface {
	// AcceptedIDs are the ids with an accepted key, sorted. The slice is not written to.
	AcceptedIDs() []string
	// Ask calls fn, one call at a time, with minions that have cached data and the terms of q that
	// hold for them, more than once for one if they are of grains and of pillar; minions for which
	// none holds may be left out, and so may all but q.IDs. incomplete says what could not be read
	// ("incomplete: 3 of 256 partitions"), or is "".
	Ask(ctx context.Context, q Question, fn func(id string, hits Hits)) (incomplete string,
		err error)
	// Nodegroup is the definition of a nodegroup: text, or a list ([]any or []string).
	Nodegroup(name string) (definition any, ok bool)
	// DataCache is the option minion_data_cache.
	DataCache() bool
}

// Result is who a target means.
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
// is ":". greedy asks about all accepted keys, as publishing does; not greedy, about minions with
// cached data only, as the mine does.
func Match(ctx context.Context, tgtType string, tgt any, delimiter string, src Source,
	greedy bool) (Result, error) {
	return newMatching(src, greedy).match(ctx, tgtType, tgt, delimiter)
}

// MatchMinions is Match for a target that a minion gave, which may cost less: see ErrTooCostly.
func MatchMinions(ctx context.Context, tgtType string, tgt any, src Source, greedy bool) (Result,
	error) {
	m := newMatching(src, greedy)
	m.most = ofMinions
	return m.match(ctx, tgtType, tgt, "")
}

// Certain is Match, greedy, without the minions that are meant only because nobody can tell: those
// without the data that is asked for, or all if that data could not be read, is not kept, or is a
// range server's. Rights are resolved so, and what is sent within them.
func Certain(ctx context.Context, tgtType string, tgt any, delimiter string, src Source) (Result,
	error) {
	m := newMatching(src, true)
	m.certain = true
	return m.match(ctx, tgtType, tgt, delimiter)
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

// Means reports whether a target that a minion gave, not greedy, means the minion id for certain.
// Only that minion's data is asked about.
func Means(ctx context.Context, tgtType string, tgt any, src Source, id string) (bool, error) {
	found, err := MatchMinions(ctx, tgtType, tgt, only{src, id}, false)
	return err == nil && found.Incomplete == "" && slices.Contains(found.Minions, id), err
}

// only is a world with one minion of another one.
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

// Named is how many minions a target names by their ids, -1 for a target that must be matched.
// Matching one that names costs no more than reading it.
func Named(tgtType string, tgt any) int {
	switch tgtType {
	case "list":
		if ids, ok := asList(tgt); ok && size(tgt) <= maxExpression {
			return len(ids)
		}
	}
	return -1
}

// list keeps the order and drops what was said twice.
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
