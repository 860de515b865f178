package target

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// golden holds what the real library answered; testdata/targets.py writes it.
type golden struct {
	IDs        []string
	Grains     map[string]map[string]any
	Pillar     map[string]map[string]any
	Nodegroups map[string]any
	Cases      []struct {
		Type    string
		Tgt     any
		Greedy  bool
		Minions []string
		Missing []string
	}
	noCache    bool
	incomplete string // said of grains
}

func (g *golden) AcceptedIDs() []string { return g.IDs }
func (g *golden) DataCache() bool       { return !g.noCache }
func (g *golden) Nodegroup(name string) (any, bool) {
	v, ok := g.Nodegroups[name]
	return v, ok
}

func (g *golden) Ask(_ context.Context, q Question, fn func(string, Hits)) (string, error) {
	j := q.Judge()
	incomplete := ""
	for _, look := range j.Looks() {
		if !look.Pillar {
			incomplete = g.incomplete
		}
	}
	for id, m := range g.Grains {
		fn(id, j.Minion(false, toWire(m).(value.Map)))
	}
	for id, m := range g.Pillar {
		fn(id, j.Minion(true, toWire(m).(value.Map)))
	}
	return incomplete, nil
}

func toWire(v any) any {
	switch v := v.(type) {
	case map[string]any:
		var m value.Map
		for k, x := range v {
			m = append(m, value.Pair{Key: k, Value: toWire(x)})
		}
		if m == nil {
			m = value.Map{}
		}
		return m
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = toWire(v[i])
		}
		return out
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

func load(t testing.TB) *golden {
	t.Helper()
	f, err := os.Open("testdata/targets.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.UseNumber()
	var g golden
	if err := d.Decode(&g); err != nil {
		t.Fatal(err)
	}
	return &g
}

func TestMatchLikeSalt(t *testing.T) {
	t.Parallel()
	g := load(t)
	for _, c := range g.Cases {
		r, err := Match(context.Background(), c.Type, c.Tgt, "", g, c.Greedy)
		if err != nil {
			t.Errorf("%s %q: %v", c.Type, c.Tgt, err)
			continue
		}
		got := slices.Clone(r.Minions)
		slices.Sort(got)
		if !slices.Equal(got, c.Minions) {
			t.Errorf("%s %q greedy=%v: got %q, Salt says %q", c.Type, c.Tgt, c.Greedy, got,
				c.Minions)
		}

		missing := slices.Clone(r.Missing)
		slices.Sort(missing)
		missing = slices.Compact(missing)
		slices.Sort(c.Missing)
		if !slices.Equal(missing, c.Missing) {
			t.Errorf("%s %q: missing %q, Salt says %q", c.Type, c.Tgt, missing, c.Missing)
		}
	}
}

func TestMatchOwnRules(t *testing.T) {
	t.Parallel()
	g := load(t)
	off := load(t)
	off.noCache = true
	many := strings.Repeat("( ", 3000) + "min6"
	tests := []struct {
		name, tgtType string
		tgt           any
		delimiter     string
		src           *golden
		greedy        bool
		want          string
	}{
		{"empty type is glob", "", "min6", "", g, true, "min6"},
		{"nil target", "glob", nil, "", g, true, ""},
		{"list as glob", "glob", []any{"min6"}, "", g, true, ""},
		{"number as list", "list", int64(4), "", g, true, ""},
		{"list keeps order", "list", "min8,min6", "", g, true, "min8,min6"},
		{"other delimiter", "grain", "nest|x|y|z", "|", g, true, "min7"},
		{"long delimiter", "grain", "nest::x::y::z", "::", g, true, "min7"},
		{"exact compound pillar", "compound_pillar_exact", "I@color:bl*", "", g, true,
			"web01.example.com"},
		{"compound as list of words", "compound", []any{"min6", "or", "min7"}, "", g, true,
			"min6,min7"},
		{"no data cache, greedy", "grain", "os:Debian", "", off, true, strings.Join(g.IDs, ",")},
		{"no data cache, not greedy", "grain", "os:Debian", "", off, false, ""},
		{"no data cache, compound", "compound", "G@os:Debian and min6", "", off, true, "min6"},
		{"range without a server means everybody, where 3008.3 fails on its own call", "compound",
			"R@x and min6", "", g, true, "min6"},
		{"endless nesting", "compound", many, "", g, true, ""},
		{"too long", "glob", strings.Repeat("x", maxExpression+1), "", g, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := Match(context.Background(), tt.tgtType, tt.tgt, tt.delimiter, tt.src,
				tt.greedy)
			if got := strings.Join(r.Minions, ","); err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestSlowPatternsEnd(t *testing.T) {
	t.Parallel()
	g := &golden{IDs: []string{strings.Repeat("a", 60) + "!", strings.Repeat("a", 61) + "!"}}
	began := time.Now()
	for _, tt := range [][2]string{{"pcre", "(a+)+$"}, {"glob", strings.Repeat("*a", 500) + "b"}} {
		r, err := Match(context.Background(), tt[0], tt[1], "", g, true)
		if err != nil || len(r.Minions) != 0 {
			t.Errorf("%s %s: %v, %v", tt[0], tt[1], r, err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestMatchFull(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, s   string
		start, whole bool
	}{
		{"we", "web", true, false}, {"web", "web", true, true}, {"w|web", "web", true, true},
		{"eb", "web", false, false},
		{"(", "web", false, false}, {"web$", "web\n", true, false},
	} {
		if got := MatchStart(tt.pattern, tt.s); got != tt.start {
			t.Errorf("MatchStart(%q, %q) = %v", tt.pattern, tt.s, got)
		}
		if got := MatchFull(tt.pattern, tt.s); got != tt.whole {
			t.Errorf("MatchFull(%q, %q) = %v", tt.pattern, tt.s, got)
		}
	}
}

func FuzzMatch(f *testing.F) {
	g := load(f)
	for _, c := range g.Cases {
		if s, ok := c.Tgt.(string); ok {
			f.Add(c.Type, s)
		}
	}
	accepted := make(map[string]bool)
	for _, id := range g.IDs {
		accepted[id] = true
	}
	f.Fuzz(func(t *testing.T, tgtType, tgt string) {
		r, err := Match(context.Background(), tgtType, tgt, "", g, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range r.Minions {
			if !accepted[id] {
				t.Fatalf("%s %q matches the stranger %q", tgtType, tgt, id)
			}
		}
	})
}

func BenchmarkCompound(b *testing.B) {
	g := load(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Match(context.Background(), "compound", "G@os:Debian and not min6 or L@db1",
			"", g, true); err != nil {
			b.Fatal(err)
		}
	}
}

// TestForMinions: what is sent to minions means the same and names no nodegroup.
func TestForMinions(t *testing.T) {
	t.Parallel()
	g := load(t)
	for _, c := range g.Cases {
		tgtType, sent := ForMinions(c.Type, c.Tgt, g)
		if text, ok := sent.(string); ok && len(c.Minions) > 0 &&
			(tgtType == "nodegroup" || tgtType == "compound" && strings.Contains(text, "N@")) {
			t.Errorf("%s %v is sent as %s %q", c.Type, c.Tgt, tgtType, text)
		}
		got, err := Match(t.Context(), tgtType, sent, "", g, c.Greedy)
		if want := slices.Sorted(slices.Values(c.Minions)); err != nil ||
			!slices.Equal(slices.Sorted(slices.Values(got.Minions)), want) {
			t.Errorf("%s %v, sent as %s %v, matches %v, want %v (error %v)", c.Type, c.Tgt, tgtType,
				sent, got.Minions, want, err)
		}
	}
	if tgtType, sent := ForMinions("nodegroup", "nosuch", g); tgtType != "nodegroup" ||
		sent != "nosuch" {
		t.Errorf("an unknown nodegroup is sent as %s %v", tgtType, sent)
	}
}

// TestForMaster: what commands send means the same to a master without nodegroups or with others.
func TestForMaster(t *testing.T) {
	t.Parallel()
	g, other := load(t), load(t)
	other.Nodegroups = map[string]any{}
	for name := range g.Nodegroups {
		other.Nodegroups[name] = "*"
	}
	g.Nodegroups["empty"] = ""
	other.Nodegroups["empty"], other.Nodegroups["nosuch"] = "*", "*"
	for _, c := range g.Cases {
		tgtType, sent, err := ForMaster(c.Type, c.Tgt, g)
		if unknown := (*UnknownGroupError)(nil); errors.As(err, &unknown) {
			if _, known := g.Nodegroups[unknown.Name]; known || c.Type == "nodegroup" &&
				len(c.Minions) > 0 {
				t.Errorf("%s %v: %v", c.Type, c.Tgt, err)
			}
			continue
		}
		got, err := Match(t.Context(), tgtType, sent, "", other, c.Greedy)
		if want := slices.Sorted(slices.Values(c.Minions)); err != nil ||
			!slices.Equal(slices.Sorted(slices.Values(got.Minions)), want) {
			t.Errorf("%s %v, sent as %s %v, matches %v, want %v (error %v)", c.Type, c.Tgt, tgtType,
				sent, got.Minions, want, err)
		}
	}
	for _, tt := range []struct{ tgtType, tgt, want, unknown string }{
		{"nodegroup", "nosuch", "", "nosuch"},
		{"nodegroup", "empty", "", ""},
		{"compound", "N@empty", "", ""},
		{"compound", "web*  or N@nosuch", "", "nosuch"},
		{"compound", "web*  or N@", "web* or N@", ""},
	} {
		tgtType, sent, err := ForMaster(tt.tgtType, tt.tgt, g)
		if unknown := (*UnknownGroupError)(nil); errors.As(err, &unknown) {
			if unknown.Name != tt.unknown {
				t.Errorf("%s %q: %v", tt.tgtType, tt.tgt, err)
			}
			continue
		}
		if err != nil || tt.unknown != "" || tgtType != "compound" || sent != tt.want {
			t.Errorf("%s %q is sent as %s %q (error %v)", tt.tgtType, tt.tgt, tgtType, sent, err)
		}
	}
}

// TestMatchSaysWhatIsIncomplete: only a target that asked for what could not be read is incomplete.
func TestMatchSaysWhatIsIncomplete(t *testing.T) {
	t.Parallel()
	g := load(t)
	g.incomplete = "incomplete: 3 of 256 partitions"
	for _, tt := range []struct{ tgtType, tgt, want string }{
		{"grain", "os:*", g.incomplete}, {"compound", "G@os:* and I@x:*", g.incomplete},
		{"ipcidr", "10.0.0.0/8", g.incomplete},
		{"glob", "*", ""}, {"pillar", "x:*", ""}, {"list", "min1,min2", ""},
	} {
		got, err := Match(t.Context(), tt.tgtType, tt.tgt, "", g, true)
		if err != nil || got.Incomplete != tt.want {
			t.Errorf("%s %s: incomplete is %q, want %q (error %v)", tt.tgtType, tt.tgt,
				got.Incomplete, tt.want, err)
		}
	}
}
