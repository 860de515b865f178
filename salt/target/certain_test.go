package target

import (
	"slices"
	"strings"
	"testing"
)

// TestCertain: who is meant only because nobody can tell is not meant for certain, also behind
// "not".
func TestCertain(t *testing.T) {
	t.Parallel()
	world := func() *golden {
		return &golden{
			IDs: []string{"bare", "db1", "web1"}, // bare has no data
			Grains: map[string]map[string]any{
				"db1":  {"os": "Debian", "ipv4": []any{"10.0.0.2"}},
				"web1": {"os": "Plan9", "ipv4": []any{"192.168.0.1"}},
			},
			Pillar: map[string]map[string]any{"db1": {"env": "prod"}, "web1": {"env": "test"}},
		}
	}
	whole, off := world(), world()
	off.noCache = true
	for _, tt := range []struct{ tgtType, tgt, matched, certain, withoutCache string }{
		{"glob", "*", "bare,db1,web1", "bare,db1,web1", "bare,db1,web1"},
		{"list", "web1,bare,nosuch", "web1,bare", "web1,bare", "web1,bare"},
		{"grain", "os:Debian", "db1", "db1", ""},
		{"grain_pcre", "os:D|P", "db1,web1", "db1,web1", ""},
		{"pillar", "env:prod", "db1", "db1", ""},
		{"ipcidr", "10.0.0.0/8", "bare,db1", "db1", ""},
		{"compound", "not G@os:Debian", "bare,web1", "web1", ""},
		{"compound", "not I@env:prod", "bare,web1", "web1", ""},
		{"compound", "not S@10.0.0.0/8", "web1", "web1", ""},
		{"compound", "* and not G@os:nosuch", "bare,db1,web1", "db1,web1", ""},
		{"compound", "not ( not G@os:Debian )", "db1", "db1", ""},
		{"compound", "G@os:Debian or bare", "bare,db1", "bare,db1", "bare"},
		{"compound", "web1 or not ( web* or G@os:x )", "bare,db1,web1", "db1,web1", "web1"},
		{"compound", "R@x", "bare,db1,web1", "", ""},
		{"compound", "not R@x", "", "", ""},
		{"compound", "not M@db1", "bare,db1,web1", "", ""},
		{"compound", "not T@x:y or web1", "bare,db1,web1", "web1", "web1"},
	} {
		for _, c := range []struct {
			name string
			src  *golden
			want string
		}{{"certain", whole, tt.certain}, {"without a cache", off, tt.withoutCache}} {
			got, err := Certain(t.Context(), tt.tgtType, tt.tgt, "", c.src)
			if ids := strings.Join(got.Minions, ","); err != nil || ids != c.want {
				t.Errorf("%s %q %s: got %q, %v; want %q", tt.tgtType, tt.tgt, c.name, ids, err,
					c.want)
			}
		}
		got, err := Match(t.Context(), tt.tgtType, tt.tgt, "", whole, true)
		if ids := strings.Join(got.Minions, ","); err != nil || ids != tt.matched {
			t.Errorf("%s %q: got %q, %v; want %q", tt.tgtType, tt.tgt, ids, err, tt.matched)
		}
	}
}

// FuzzCertain: whatever a minion's data that is not at hand may be, who is meant for certain is
// meant.
func FuzzCertain(f *testing.F) {
	g := load(f)
	for _, c := range g.Cases {
		if s, ok := c.Tgt.(string); ok {
			f.Add(c.Type, s, uint64(0x5555))
		}
	}
	f.Add("compound", "not ( G@os:Debian or not S@10.0.0.0/8 ) and R@x", uint64(3))
	f.Fuzz(func(t *testing.T, tgtType, tgt string, hidden uint64) {
		blind := *g
		blind.Grains, blind.Pillar = map[string]map[string]any{}, map[string]map[string]any{}
		for i, id := range g.IDs {
			if hidden>>(i%64)&1 == 0 {
				for from, to := range map[*map[string]map[string]any]map[string]map[string]any{&g.Grains: blind.Grains, &g.Pillar: blind.Pillar} {
					if data, ok := (*from)[id]; ok {
						to[id] = data
					}
				}
			}
		}
		certain, err := Certain(t.Context(), tgtType, tgt, "", &blind)
		if err != nil {
			t.Fatal(err)
		}
		may, err := Match(t.Context(), tgtType, tgt, "", g, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range certain.Minions {
			if !slices.Contains(may.Minions, id) {
				t.Fatalf("%s %q means %s for certain, and does not with all data at hand", tgtType,
					tgt, id)
			}
		}
	})
}
