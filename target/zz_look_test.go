package target_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"clustermaster/target"
	"clustermaster/wire"
)

func ord(dec *json.Decoder) any {
	tok, err := dec.Token()
	if err != nil {
		panic(err)
	}
	switch tok := tok.(type) {
	case json.Number:
		if i, err := tok.Int64(); err == nil {
			return i
		}
		if !bytes.ContainsAny([]byte(tok), ".eE") {
			var u uint64
			fmt.Sscan(string(tok), &u)
			return u
		}
		f, _ := tok.Float64()
		return f
	case json.Delim:
		m, list := wire.Map{}, []any{}
		for dec.More() {
			v := ord(dec)
			if tok == '{' {
				m = append(m, wire.Pair{Key: v, Value: ord(dec)})
			} else {
				list = append(list, v)
			}
		}
		dec.Token()
		if tok == '{' {
			return m
		}
		return list
	default:
		return tok
	}
}

type lookWorld struct {
	ids            []string
	grains, pillar map[string]wire.Map
	ng             wire.Map
}

func (w *lookWorld) AcceptedIDs() []string             { return w.ids }
func (w *lookWorld) DataCache() bool                   { return true }
func (w *lookWorld) Nodegroup(name string) (any, bool) { return w.ng.Get(name) }
func (w *lookWorld) Ask(_ context.Context, q target.Question, fn func(string, target.Hits)) (string, error) {
	j := q.Judge()
	for id, grains := range w.grains {
		fn(id, j.Minion(false, grains))
	}
	for id, pillar := range w.pillar {
		fn(id, j.Minion(true, pillar))
	}
	return "", nil
}

func TestLook(t *testing.T) {
	b, err := os.ReadFile("/tmp/look/t/world.json")
	if os.Getenv("LOOK") == "" || err != nil {
		t.Skip()
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	all := ord(dec).(wire.Map)
	w := &lookWorld{grains: map[string]wire.Map{}, pillar: map[string]wire.Map{}}
	v, _ := all.Get("minions")
	for _, p := range v.(wire.Map) {
		id := p.Key.(string)
		w.ids = append(w.ids, id)
		if m, ok := p.Value.(wire.Map); ok {
			if g, ok := m.Get("grains"); ok {
				w.grains[id] = g.(wire.Map)
			}
			if g, ok := m.Get("pillar"); ok {
				w.pillar[id] = g.(wire.Map)
			}
		}
	}
	slices.Sort(w.ids)
	v, _ = all.Get("nodegroups")
	w.ng = v.(wire.Map)
	s, _ := os.ReadFile("/tmp/look/t/salt.json")
	var salt [][]string
	if err := json.Unmarshal(s, &salt); err != nil {
		t.Fatal(err)
	}
	v, _ = all.Get("targets")
	n := 0
	for i, q := range v.([]any) {
		q := q.([]any)
		d, _ := q[3].(string)
		began := time.Now()
		found, err := target.Match(t.Context(), q[0].(string), q[1], d, w, q[2].(bool))
		if e := time.Since(began); e > time.Second {
			t.Log("SLOW", q, e)
		}
		o := slices.Clone(found.Minions)
		slices.Sort(o)
		o = slices.Compact(o)
		x := slices.Compact(salt[i])
		if err != nil || !slices.Equal(o, x) {
			n++
			fmt.Printf("== %q\n   OURS %d %.150q %v\n   SALT %d %.150q\n", q, len(o), o, err, len(x), x)
		}
	}
	fmt.Println(len(salt), "targets", n, "differ")
}
