package target

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"clustermaster/value"
)

func packed(t testing.TB, v any) value.Raw {
	t.Helper()
	b, err := value.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzQuestion: what another master sends is a question that packs to an equal one, or refused; and
// judging it does not panic.
func FuzzQuestion(f *testing.F) {
	for _, q := range []Question{
		{}, {Terms: []Term{{Kind: "grain", Text: "os:Debian", Delimiter: ":"}}},
		{Terms: []Term{{Kind: "ipcidr", Text: "10.0.0.0/8", Unless: true},
			{Kind: "pillar_pcre", Text: "a|b(", Delimiter: "|"},
			{Kind: "grain", Text: "*:*", Delimiter: ":"}}},
		{Terms: []Term{{Kind: "pillar_exact", Text: "a\xff:b", Delimiter: "\xff"}}},
	} {
		b, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	data := m("os", "Debian", "ipv4", []any{"10.0.0.1"}, "a", m("b", "c"), int64(7), "seven")
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := ParseQuestion(b)
		if err != nil {
			if !errors.Is(err, ErrQuestion) || len(q.Terms) > 0 {
				t.Fatal(q, err)
			}
			return
		}
		again, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if q2, err := ParseQuestion(again); err != nil || len(q2.Terms) != len(q.Terms) ||
			len(q.Terms) > 0 && !reflect.DeepEqual(q, q2) {
			t.Fatalf("%v, again %v, %v", q, q2, err)
		}
		j := q.Judge()
		if want := (len(q.Terms) + 7) / 8; j.Width() != want || len(j.Minion(false, data)) != want {
			t.Fatalf("width %d for %d terms", j.Width(), len(q.Terms))
		}
	})
}

// FuzzParts: what terms find in the parts of packed data is what they find in the whole of it.
func FuzzParts(f *testing.F) {
	grains := packed(f, m("os", "Debian", "nest", m("dc", "fra", "l", []any{"x", m("n", "one")}),
		int64(7), "seven", "7", "text", true, m("a", "b"), "a:b", "c", "os", "Ubuntu"))
	for _, path := range []string{"os:Debian", "os:Ubuntu", "nest:dc:*", "nest:l:n:one", "7:text",
		"7:seven", "True:a:b", "*:fra", "*:*", "os", "", ":", "a:b:c", "*:nest:dc:fra"} {
		f.Add([]byte(grains), path)
	}
	f.Add([]byte("\x81\xa0\xc0"), ":*")
	f.Add([]byte("\x81\xa1\xff\xa1x"), "\xff:x")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		q := Question{Terms: []Term{{Kind: "grain", Text: path, Delimiter: ":"},
			{Kind: "ipcidr", Text: "10.0.0.0/8"}}}
		j := q.Judge()
		full, fullErr := value.UnpackMap(data)
		keys := map[string]int{}
		for _, l := range j.Looks() {
			if !l.Whole {
				keys[l.Key] = len(keys)
			}
		}
		parts := make([]value.Raw, len(keys))
		found := make([]bool, len(keys))
		err := Parts(data, keys, func(i int, part value.Raw) { parts[i], found[i] = part, true })
		if (err == nil) != (fullErr == nil) {
			t.Fatalf("parts say %v, the whole %v", err, fullErr)
		}
		if err != nil {
			return
		}
		for range 2 { // the second time from the memo
			hits := make(Hits, j.Width())
			for n, l := range j.Looks() {
				if l.Whole {
					j.Part(n, string(data), true, hits)
				} else {
					j.Part(n, string(parts[keys[l.Key]]), found[keys[l.Key]], hits)
				}
			}
			if want := j.Minion(false, full); !bytes.Equal(hits, want) {
				t.Fatalf("%q in %x: %b by parts, %b by the whole", path, data, hits, want)
			}
		}
	})
}

func TestQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	if _, err := (Question{Terms: []Term{{Kind: "grain",
		Text: strings.Repeat("x", maxQuestion)}}}).Pack(); !errors.Is(err, ErrQuestion) {
		t.Error("a long question is packed:", err)
	}
	if _, err := ParseQuestion(make([]byte, maxQuestion+1)); !errors.Is(err, ErrQuestion) {
		t.Error("a long question is parsed:", err)
	}
	term := []any{"grain", "a:b", ":", false}
	for _, v := range []any{nil, "x", []any{"x"}, []any{[]any{"grain", "a", ":"}},
		[]any{[]any{"list", "a", ":", false}}, []any{[]any{"grain", int64(1), ":",
			false}}, []any{[]any{"grain", "a", ":", "no"}},
		slices.Repeat([]any{term}, maxWords+1)} {
		if _, err := ParseQuestion(packed(t, v)); !errors.Is(err, ErrQuestion) {
			t.Errorf("%.80v is a question: %v", v, err)
		}
	}
}

// TestOnlyWhatIsOpenIsAsked: a target that names minions or patterns of ids asks about no others,
// and one that is decided without data asks nothing.
func TestOnlyWhatIsOpenIsAsked(t *testing.T) {
	t.Parallel()
	g := load(t)
	for _, tt := range []struct {
		tgt   string
		asked bool
		ids   []string
	}{
		{"G@os:Debian", true, nil},
		{"min6 and G@os:Debian", true, []string{"min6"}},
		{"L@min6,db1 and not G@os:Debian", true, []string{"db1", "min6"}},
		{"min6 or G@os:Debian", true, slices.DeleteFunc(slices.Clone(g.IDs),
			func(id string) bool { return id == "min6" })},
		{"* or G@os:Debian", false, nil},
		{"nosuch and G@os:Debian", false, nil},
		{"min6 and not ( min6 or G@os:Debian )", false, nil},
	} {
		s := &spy{golden: g}
		if _, err := Match(t.Context(), "compound", tt.tgt, "", s, true); err != nil {
			t.Fatal(err)
		}
		if s.asked != tt.asked || !slices.Equal(s.ids, tt.ids) {
			t.Errorf("%s: asked %v about %v, want %v about %v", tt.tgt, s.asked, s.ids, tt.asked,
				tt.ids)
		}
	}
	for _, id := range append(slices.Clone(g.IDs), "nosuch") {
		for _, c := range g.Cases {
			if c.Greedy {
				continue
			}
			s := &spy{golden: g}
			got, _, err := Means(t.Context(), c.Type, c.Tgt, s, id)
			if err != nil || got != slices.Contains(c.Minions, id) {
				t.Errorf("%s %v means %s: %v, %v", c.Type, c.Tgt, id, got, err)
			}
			if s.asked && !slices.Equal(s.ids, []string{id}) {
				t.Errorf("%s %v: asked about %v to know about %s", c.Type, c.Tgt, s.ids, id)
			}
		}
	}
}

// spy notes what is asked.
type spy struct {
	*golden
	asked bool
	ids   []string
}

func (s *spy) Ask(ctx context.Context, q Question, fn func(string, Hits)) (string, error) {
	s.asked, s.ids = true, q.IDs
	return s.golden.Ask(ctx, q, fn)
}

func TestSet(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 63, 64, 65, 200} {
		all := firsts(n)
		if all.len() != n || all.has(n) || n > 0 && !all.has(n-1) {
			t.Errorf("the first %d are %d", n, all.len())
		}
		var odd set
		for i := 1; i < n; i += 2 {
			odd = odd.add(i)
		}
		even := without(all, odd)
		if or(odd, even).len() != n || and(odd, even).len() != 0 || without(odd, all).len() != 0 ||
			even.len() != (n+1)/2 {
			t.Errorf("of %d, %d are odd and %d even", n, odd.len(), even.len())
		}
		last := -1
		even.each(func(i int) {
			if i%2 != 0 || i <= last {
				t.Errorf("%d after %d", i, last)
			}
			last = i
		})
	}
}

func m(pairs ...any) value.Map {
	var out value.Map
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}
