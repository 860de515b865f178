package render

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"clustermaster/test/unpacked"
	"clustermaster/value"
)

func newRenderer(t testing.TB, o Options) *Renderer {
	t.Helper()
	if o.Dir == "" {
		o.Dir = unpacked.Dir()
	}
	r := New(o, testLog(t), nil)
	t.Cleanup(func() { r.Close() })
	return r
}

// tree is a Host with files and a few functions.
type tree struct {
	files map[string]string
	calls map[string]func(ctx context.Context, args []any, kwargs value.Map) (any, error)
}

func (h tree) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	f, ok := h.calls[fun]
	if !ok {
		return nil, fmt.Errorf("%s: %w", fun, ErrUnknownFunction)
	}
	return f(ctx, args, kwargs)
}

func (h tree) File(_ context.Context, _, path string) ([]byte, bool, error) {
	s, ok := h.files[path]
	return []byte(s), ok, nil
}

// object makes a map of alternating keys and values.
func object(pairs ...any) value.Map {
	out := value.Map{}
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

func source(sls, text string) Source {
	return Source{Path: "/srv/pillar/" + strings.ReplaceAll(sls, ".", "/") + ".sls", SLS: sls,
		SaltEnv: "base", Data: []byte(text)}
}

func TestRender(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{})
	c := Context{ID: "web1", Grains: object("os", "Debian", "ips", []any{"10.0.0.1"})}
	host := tree{
		files: map[string]string{"map.jinja": "{% set port = 80 %}", "d/v.yml": "a: {b: [1, 2]}\n"},
		calls: map[string]func(context.Context, []any, value.Map) (any, error){
			"test.echo": func(_ context.Context, args []any, _ value.Map) (any,
				error) {
				return args[0], nil
			},
			"cmd.run": func(context.Context, []any, value.Map) (any, error) {
				return nil,
					errors.New("no such command")
			},
		},
	}
	for _, tt := range []struct {
		name, text string
		want       any
		err        string
	}{
		{name: "plain", text: "a: 1\nb: [x, 0644]\n",
			want: object("a", int64(1), "b", []any{"x", int64(644)})},
		{name: "empty", text: " \n", want: value.Map{}},
		{name: "grain", text: "os: {{ grains.os }}\nn: {{ grains['ips'] | length }}\n",
			want: object("os", "Debian", "n", int64(1))},
		{name: "order",
			text: "{% for k in ['z', 'a', 'm'] %}{{ k }}: {{ loop.index }}\n{% endfor %}",
			want: object("z", int64(1), "a", int64(2), "m", int64(3))},
		{name: "import", text: "{% from 'map.jinja' import port %}p: {{ port }}\n",
			want: object("p", int64(80))},
		{name: "import_yaml", text: "{% import_yaml 'd/v.yml' as v %}v: {{ v }}\n",
			want: object("v", object("a", object("b", []any{int64(1), int64(2)})))},
		{name: "call", text: "v: {{ salt['test.echo']('x') }}\nw: {{ salt.test.echo(2) }}",
			want: object("v", "x", "w", int64(2))},
		{name: "place", text: "a: {{ tplfile }}\nb: {{ tpldir }}\nc: '{{ slspath }}'\nd: {{ sls }}",
			want: object("a", "t.sls", "b", ".", "c", "", "d", "t")},
		{name: "json", text: "#!jinja|json\n{\"a\": {{ 1 + 1 }}}", want: object("a", int64(2))},
		{name: "py",
			text: "#!py\ndef run():\n    return {'os': __grains__['os'], 'e': __salt__['test.echo'](1)}\n", want: object("os", "Debian", "e", int64(1))},
		{name: "undefined", text: "a: 1\nb: {{ nope }}\n",
			err: "Jinja variable 'nope' is undefined; line 2\n\n---\na: 1\nb: {{ nope }}    <======================\n---"},
		{name: "call fails", text: "b: {{ salt['cmd.run']('x') }}\n",
			err: "Problem running salt function in Jinja template: no such command; line 1\n\n---\nb: {{ salt['cmd.run']('x') }}    <======================\n---"},
		{name: "unknown function", text: "b: {{ salt['no.pe']('x') }}\n",
			err: "Jinja variable 'salt.utils.templates.AliasedLoader object' has no attribute 'no.pe'; line 1\n\n---\nb: {{ salt['no.pe']('x') }}    <======================\n---"},
		{name: "duplicate", text: "a: 1\na: 2\n",
			err: "while constructing a mapping\n  in \"<unicode string>\", line 1, column 1\nfound conflicting ID 'a'\n  in \"<unicode string>\", line 2, column 1"},
		{name: "no renderer", text: "#!yamlex\na: 1\n",
			err: `The renderer "yamlex" of /srv/pillar/t.sls is not available; use one of jinja, yaml, json, gpg, py`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.Render(t.Context(), source("t", tt.text), "jinja|yaml", c, host)
			if tt.err != "" {
				var e *Error
				if !errors.As(err, &e) || e.Error() != tt.err {
					t.Fatalf("error %q, want %q", err, tt.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %#v, %v; want %#v", got, err, tt.want)
			}
		})
	}
}

// TestRepairsUnpacked: the next start replaces a damaged file of the unpacked tree.
func TestRepairsUnpacked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRenderer(t, Options{Dir: dir})
	src := source("t", "a: {{ 1 }}")
	if _, err := r.Render(t.Context(), src, "jinja|yaml", Context{}, tree{}); err != nil {
		t.Fatal(err)
	}
	r.Close()
	for _, name := range []string{"site/jinja2/filters.py",
		"python/lib/python3.14/re/__init__.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("import nonsense"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = newRenderer(t, Options{Dir: dir})
	if v, err := r.Render(t.Context(), src, "jinja|yaml", Context{}, tree{}); err != nil ||
		!reflect.DeepEqual(v, object("a", int64(1))) {
		t.Fatalf("after damage: %v, %v", v, err)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatalf("folder %v, %v", fi.Mode(), err)
	}
}
