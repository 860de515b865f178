package render

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"clustermaster/value"
)

func hits(r *Renderer) int {
	var m dto.Metric
	if err := r.m.cache.WithLabelValues("hit").Write(&m); err != nil {
		panic(err)
	}
	return int(m.GetCounter().GetValue())
}

// TestCacheNeverSharesWrongly: two minions that differ in one value never get each other's render.
// Over the whole corpus and every top-level value of the context, a cached render that is returned
// for the changed context equals a fresh one.
func TestCacheNeverSharesWrongly(t *testing.T) {
	t.Parallel()
	kept := newRenderer(t, Options{CacheSize: 256 << 20})
	fresh := newRenderer(t, Options{CacheSize: -1})
	shared, changes := 0, 0
	for _, c := range corpus(t) {
		if strings.Contains(c.Text, "endless") {
			continue
		}
		src := Source{Path: "/roots/t.sls", SLS: c.SLS, SaltEnv: "base", Data: []byte(c.Text)}
		ctx := corpusContext(t, c)
		host := rootsHost{ctx.Grains, ctx.Pillar}
		if _, err := kept.Render(t.Context(), src, "jinja|yaml", ctx, host); err != nil {
			continue
		}
		for _, other := range changed(ctx) {
			changes++
			before := hits(kept)
			host := rootsHost{other.Grains, other.Pillar}
			got, err := kept.Render(t.Context(), src, "jinja|yaml", other, host)
			if hits(kept) == before {
				continue
			}
			shared++
			want, wantErr := fresh.Render(t.Context(), src, "jinja|yaml", other, host)
			if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: kept %#v, %v; fresh %#v, %v", c.Name, got, err, want, wantErr)
			}
		}
	}
	t.Logf("%d changed contexts, %d served from the cache", changes, shared)
	if shared < changes/10 || shared == changes {
		t.Errorf("%d of %d renders shared: the test proves nothing", shared, changes)
	}
}

// changed gives contexts that differ from c in one top-level value, or its id.
func changed(c Context) []Context {
	var out []Context
	vary := func(m value.Map, set func(*Context, value.Map)) {
		for i := range m {
			other := append(value.Map{}, m...)
			other[i].Value = fmt.Sprintf("changed %v", m[i].Key)
			d := c
			set(&d, other)
			out = append(out, d)
		}
		d := c
		set(&d, append(append(value.Map{}, m...), value.Pair{Key: "nope", Value: "now there"}))
		out = append(out, d)
	}
	vary(c.Grains, func(d *Context, m value.Map) { d.Grains = m })
	vary(c.Pillar, func(d *Context, m value.Map) { d.Pillar = m })
	vary(c.Opts, func(d *Context, m value.Map) { d.Opts = m })
	return out
}

// countedHost counts calls and can change its files.
type countedHost struct {
	tree
	n atomic.Int64
}

func (h *countedHost) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	h.n.Add(1)
	return h.n.Load(), nil
}

func TestCache(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{})
	h := &countedHost{tree: tree{files: map[string]string{"m.jinja": "{% set v = grains.os %}"}}}
	render := func(text string, grains value.Map) any {
		t.Helper()
		v, err := r.Render(t.Context(), source("t", text), "jinja|yaml",
			Context{ID: "m", Grains: grains}, h)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := v.(value.Map)
		got, _ := m.Get("a")
		return got
	}
	expect := func(what string, got, want any, wantHits int) {
		t.Helper()
		if got != want || hits(r) != wantHits {
			t.Errorf("%s: got %v with %d hits, want %v with %d", what, got, hits(r), want, wantHits)
		}
	}
	debian, redhat := object("os", "Debian", "id", "m1"), object("os", "RedHat", "id", "m1")
	imports := "{% from 'm.jinja' import v %}a: {{ v }}"
	expect("first", render(imports, debian), "Debian", 0)
	expect("again", render(imports, debian), "Debian", 1)
	expect("another value in the import", render(imports, redhat), "RedHat", 1)
	expect("a value that nothing reads", render(imports, object("os", "Debian", "id", "m2")),
		"Debian", 2)
	h.files["m.jinja"] = "{% set v = grains.id %}"
	expect("the import changed", render(imports, debian), "m1", 2)
	expect("and reads more now", render(imports, object("os", "Debian", "id", "m2")), "m2", 2)
	expect("which is kept", render(imports, debian), "m1", 3)

	absent := "{% include 'late.txt' ignore missing %}\na: {{ 1 }}"
	expect("absent", render(absent, nil), int64(1), 3)
	expect("absent again", render(absent, nil), int64(1), 4)
	h.files["late.txt"] = "b: 1"
	expect("the absent file came", render(absent, nil), int64(1), 4)

	// The import now depends on what it reads; only then does the render read more.
	h.files["x.jinja"] = "{% set w = grains.id %}"
	branch := "{% set w = 'none' %}{% if grains.os == 'RedHat' %}{% from 'x.jinja' import w %}{% endif %}a: {{ w }}"
	expect("without import", render(branch, debian), "none", 4)
	expect("with import", render(branch, redhat), "m1", 4)
	expect("with import, another id", render(branch, object("os", "RedHat", "id", "m3")), "m3", 4)

	for _, impure := range []string{
		"a: {{ salt['cmd.run']('date') }}", "a: {{ 99999999999 | random_hash }}",
		"a: {{ [1, 2, 3, 4, 5, 6, 7, 8, 9] | random_shuffle }}", "a: {{ none | strftime('%s%f') }}",
		"a: {{ lipsum(n=1) | md5 }}", "a: {{ 20 | random_str }}",
	} {
		before := hits(r)
		first := render(impure, debian)
		second := render(impure, debian)
		if hits(r) != before || reflect.DeepEqual(first, second) &&
			!strings.Contains(impure, "strftime") {
			t.Errorf("%s: %v, then %v", impure, first, second)
		}
	}
}

// TestCacheCopiesAndStaysSmall: a value from the cache belongs to its receiver, and the
// cache stays within its size.
func TestCacheCopiesAndStaysSmall(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{CacheSize: 100_000})
	get := func(n int) value.Map {
		t.Helper()
		v, err := r.Render(t.Context(), source("t",
			fmt.Sprintf("a: {b: [%d]}\nlong: %s\n", n, strings.Repeat("x", 1000))), "jinja|yaml",
			Context{}, tree{})
		if err != nil {
			t.Fatal(err)
		}
		return v.(value.Map)
	}
	for range 2 {
		m := get(1)
		m[0].Value.(value.Map)[0].Value.([]any)[0] = "spoiled"
		m[1].Value = "spoiled"
	}
	if m := get(1); reflect.DeepEqual(m[1].Value, "spoiled") ||
		!reflect.DeepEqual(m[0].Value, object("b", []any{int64(1)})) {
		t.Errorf("got %v", m)
	}
	for n := range 1000 {
		get(n)
	}
	c := r.cache
	if c.size > 100_000 || len(c.entries) != c.order.Len() || len(c.sources) > len(c.entries) ||
		len(c.entries) < 10 {
		t.Errorf("%d bytes, %d entries, %d in order, %d sources", c.size, len(c.entries),
			c.order.Len(), len(c.sources))
	}
}

// changingHost answers each call otherwise, and may have the module site.
type changingHost struct {
	countedHost
	site bool
}

func (h *changingHost) HasFunction(_ context.Context, name string) bool {
	return !strings.HasPrefix(name, "site") || h.site
}

func (h *changingHost) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	if _, other := kwargs.Get("pillarenv"); other {
		Impure(ctx)
	}
	return h.countedHost.Call(ctx, fun, args, kwargs)
}

// TestCacheOfWhatChanges: a render is not kept if its result can change with an equal context.
func TestCacheOfWhatChanges(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{})
	h := &changingHost{}
	plain, sdb := object("x", "plain"), object("x", object("y", []any{"sdb://vault/key"}))
	for _, c := range []struct {
		text   string
		pillar value.Map
		kept   bool
	}{
		{"{{ 'site.fun' in salt }}", plain, false},
		{"{{ salt.get('site.fun') is none }}", plain, false},
		{"{{ salt.site is defined }}", plain, false},
		{"{{ salt['config.get']('x') }}", sdb, false},
		{"{{ salt['match.filter_by']({'N@web': 1}) }}", plain, false},
		{"{{ salt['match.filter_by']({'web': 1}, tgt_type='nodegroup') }}", plain, false},
		{"{{ ifelse('web* and N@web', 1, 2) }}", plain, false},
		{"{{ salt['pillar.get']('x', pillarenv='other') }}", plain, false},
		{"{{ salt['pillar.get']('x') }}", plain, true},
		{"{{ salt['config.option']('x') }}", sdb, true},
		{"{{ 'grains.get' in salt }}{{ salt.grains.get('os') }}", plain, true},
		{"{{ salt['config.get']('x') }}{{ salt['config.option']('x') }}", plain, true},
		{"{{ salt['match.filter_by']({'G@os:Debian': 1}) }}{{ ifelse('web*', 1, 2) }}", plain, true},
	} {
		var got [2]any
		for i := range got {
			h.site = i == 1
			var err error
			got[i], err = r.Render(t.Context(), source("t", "a: "+c.text), "jinja|yaml",
				Context{ID: "m", Grains: object("os", "Debian"), Pillar: c.pillar}, h)
			if err != nil {
				t.Fatal(c.text, err)
			}
		}
		if kept := reflect.DeepEqual(got[0], got[1]); kept != c.kept {
			t.Errorf("%s: %v, then %v", c.text, got[0], got[1])
		}
	}
}
