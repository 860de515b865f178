package target

import (
	"errors"
	"fmt"
	"slices"

	"clustermaster/value"
	"clustermaster/value/pyregex"
)

// Question is what a target asks of the minions' grains and pillar. The masters that hold the data
// answer it.
type Question struct {
	Terms []Term
	// IDs are the minions that matter, sorted; nil for all that have data.
	IDs []string
}

// Term is one condition on the grains or the pillar of a minion.
type Term struct {
	Kind      string // grain, grain_pcre, pillar, pillar_pcre, pillar_exact or ipcidr
	Text      string
	Delimiter string // of the path in Text
	Unless    bool   // holds for the minions that have the data and do not match
}

func (t Term) pillar() bool {
	return t.Kind == "pillar" || t.Kind == "pillar_pcre" || t.Kind == "pillar_exact"
}

// Hits says which terms of a question hold for a minion, a bit for each.
type Hits []byte

// Has reports whether term i holds.
func (h Hits) Has(i int) bool { return i>>3 < len(h) && h[i>>3]&(1<<(i&7)) != 0 }

func (h Hits) add(i int) { h[i>>3] |= 1 << (i & 7) }

// maxQuestion bounds an encoded question in bytes: a target, with its nodegroups written out, and
// what surrounds it.
const maxQuestion = 2 << 20

// ErrQuestion refuses bytes that are no question, or one that is too large.
var ErrQuestion = errors.New("no question about grains and pillar")

// Pack encodes the terms for other masters.
func (q Question) Pack() ([]byte, error) {
	list := make([]any, len(q.Terms))
	for i, t := range q.Terms {
		list[i] = []any{t.Kind, t.Text, t.Delimiter, t.Unless}
	}
	b, err := value.Pack(list)
	if err != nil {
		return nil, fmt.Errorf("pack question: %w", err)
	}
	if len(b) > maxQuestion {
		return nil, fmt.Errorf("pack question of %d bytes, at most %d: %w", len(b), maxQuestion,
			ErrQuestion)
	}
	return b, nil
}

// ParseQuestion decodes what Pack made. Anything else is ErrQuestion.
func ParseQuestion(b []byte) (Question, error) {
	if len(b) > maxQuestion {
		return Question{}, fmt.Errorf("parse question of %d bytes, at most %d: %w", len(b),
			maxQuestion, ErrQuestion)
	}
	v, err := value.Unpack(b)
	list, ok := v.([]any)
	if err != nil || !ok || len(list) > maxWords {
		return Question{}, fmt.Errorf("parse question: %w", errors.Join(ErrQuestion, err))
	}
	q := Question{Terms: make([]Term, len(list))}
	for i, v := range list {
		if q.Terms[i], ok = asTerm(v); !ok {
			return Question{}, fmt.Errorf("parse term %d of a question: %w", i, ErrQuestion)
		}
	}
	return q, nil
}

func asTerm(v any) (Term, bool) {
	parts, _ := v.([]any)
	if len(parts) != 4 {
		return Term{}, false
	}
	kind, ok1 := parts[0].(string)
	text, ok2 := asText(parts[1])
	delimiter, ok3 := asText(parts[2])
	unless, ok4 := parts[3].(bool)
	switch kind {
	case "grain", "grain_pcre", "pillar", "pillar_pcre", "pillar_exact", "ipcidr":
		return Term{kind, text, delimiter, unless}, ok1 && ok2 && ok3 && ok4
	}
	return Term{}, false
}

// asText takes text and bytes: an operator's target need not be UTF-8.
func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// Look is a part of a minion's data that terms read.
type Look struct {
	Pillar bool   // read the pillar, not the grains
	Key    string // of the part
	Whole  bool   // read all of it, as for "*:value"
}

// Parts finds what looks read in a packed map. It calls fn with keys[key] and the value of that
// text key. Without such a key it takes the value of the first number or truth value whose text is
// that key. If fn is called more than once for a key, the last call counts. The error means that
// data is not a map.
func Parts(data value.Raw, keys map[string]int, fn func(i int, part value.Raw)) error {
	var texts, numbers []int
	return data.Entries(func(k, v value.Raw) {
		if b, ok := k.KeyText(); ok {
			if i, ok := keys[string(b)]; ok {
				texts = append(texts, i)
				fn(i, v)
			}
			return
		}
		n, err := k.Unpack()
		if err != nil {
			return
		}
		switch n.(type) {
		case int64, uint64, float64, bool:
			if i, ok := keys[value.Str(n)]; ok && !slices.Contains(texts, i) &&
				!slices.Contains(numbers, i) {
				numbers = append(numbers, i)
				fn(i, v)
			}
		}
	})
}

// Judge tests data against the terms of a question. Only one goroutine may use it.
type Judge struct {
	terms  []judged
	looks  []Look
	byLook [][]int // terms
	width  int
	regex  *pyregex.Budget
	steps  int  // all
	long   int  // of walks that took many
	broken bool // the last walk was stopped at its bound
}

// walked counts the steps of a walk.
func (j *Judge) walked(steps int) {
	j.steps += steps
	if steps > manySteps {
		j.long += steps
	}
	j.broken = steps > maxSteps
}

// holds tests a term against data. If the walk through data was stopped at its bound, neither the
// term nor its opposite holds.
func (j *Judge) holds(t *judged, data value.Map) (match, holds bool) {
	j.broken = false
	match = t.test(data)
	return match, match != t.Unless && !j.broken
}

// Err is ErrTooCostly once the judge has worked too much on a question; discard its hits then.
func (j *Judge) Err() error {
	if j.steps > maxJudged || j.long > maxLong || j.regex.Spent() {
		return ErrTooCostly
	}
	return nil
}

// judged is a term with its compiled test.
type judged struct {
	Term
	test func(value.Map) bool
	memo map[string]bool // results for earlier parts: most minions share a few values
}

// Bounds of a memo.
const (
	memoEntries = 4096
	memoBytes   = 256 // of one part
)

// Judge compiles the question for testing data.
func (q Question) Judge() *Judge {
	j := &Judge{terms: make([]judged, len(q.Terms)), width: (len(q.Terms) + 7) / 8,
		regex: pyregex.NewBudget(maxBacktracking)}
	at := map[Look]int{}
	for i, t := range q.Terms {
		test, look, ok := j.compile(t)
		j.terms[i] = judged{Term: t, test: test}
		if !ok && !t.Unless {
			continue // holds for no minion
		}
		n, known := at[look]
		if !known {
			n = len(j.looks)
			at[look] = n
			j.looks = append(j.looks, look)
			j.byLook = append(j.byLook, nil)
		}
		j.byLook[n] = append(j.byLook[n], i)
	}
	return j
}

// compile makes the test of a term and says what the test reads; ok is false for a term that
// nothing matches.
func (j *Judge) compile(t Term) (test func(value.Map) bool, look Look, ok bool) {
	look.Pillar = t.pillar()
	if t.Kind == "ipcidr" {
		test, grain, ok := inNetwork(t.Text)
		if !ok {
			return func(value.Map) bool { return false }, look, false
		}
		look.Key = grain
		return test, look, true
	}
	key, ok := firstPart(t.Text, t.Delimiter)
	look.Key, look.Whole = key, key == "*"
	if look.Whole {
		look.Key = ""
	}
	return deepMatcher(t.Text, t.Delimiter, kindOf(t.Kind), j.regex, j.walked), look, ok
}

// Looks returns what the terms read.
func (j *Judge) Looks() []Look { return j.looks }

// Width is the number of bytes of the hits.
func (j *Judge) Width() int { return j.width }

// Part adds to hits the terms that hold for a minion. part is the part of its data that the look
// names, packed as Parts found it; found is false if the minion has no such part. For a look at the
// whole, part is all the data. Data that does not decode matches nothing.
func (j *Judge) Part(look int, part string, found bool, hits Hits) {
	var data value.Map
	decoded := false
	for _, i := range j.byLook[look] {
		t := &j.terms[i]
		match, known := t.memo[part]
		holds := match != t.Unless
		if !found || !known {
			if found && !decoded {
				v, err := value.Unpack([]byte(part))
				if err != nil {
					return
				}
				if data = (value.Map{{Key: j.looks[look].Key, Value: v}}); j.looks[look].Whole {
					data, _ = v.(value.Map)
				}
				decoded = true
			}
			if j.steps++; j.Err() != nil {
				return
			}
			match, holds = j.holds(t, data)
			if found && len(part) <= memoBytes && len(t.memo) < memoEntries {
				if t.memo == nil {
					t.memo = map[string]bool{}
				}
				t.memo[part] = match
			}
		}
		if holds {
			hits.add(i)
		}
	}
}

// Minion returns the hits of one minion's data, which is its pillar if pillar is true, else its
// grains.
func (j *Judge) Minion(pillar bool, data value.Map) Hits {
	hits := make(Hits, j.width)
	for l, look := range j.looks {
		if look.Pillar != pillar {
			continue
		}
		for _, i := range j.byLook[l] {
			if j.steps++; j.Err() != nil {
				return hits
			}
			if _, holds := j.holds(&j.terms[i], data); holds {
				hits.add(i)
			}
		}
	}
	return hits
}
