package hosted_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/salt/hosted/hostedtest"
	"clustermaster/salt/pillar"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/render"
	"clustermaster/test/unpacked"
	"clustermaster/value"
)

const fact = "{{ salt['facts.about']().id }}" // is not native

// crowded is a site with few render workers and children, whose pillars have the given values in a
// file each. Its ext_pillar asking has the master make the pillar of the minion other.
func crowded(t testing.TB, workers, children int, values []string, o pillar.Options) *site {
	t.Helper()
	s := newSite(t, python(t, hostedtest.Releases[len(hostedtest.Releases)-1]),
		func(o *pythonhost.Options) { o.Children = children })
	tree := map[string]string{
		"ext/modules/asks.py": "import salt.runner\n\ndef other():\n" +
			"    return salt.runner.RunnerClient(__opts__).cmd('some.pillar', print_event=False)\n",
		"ext/modules/machine.py": "def __virtual__():\n" +
			"    return __grains__.get('kernel') == 'Linux'\n\ndef kernel():\n" +
			"    __context__['machine'] = 'kept'\n    return __grains__['kernel']\n\n" +
			"def again():\n    return __context__.get('machine', 'lost')\n",
		"ext/renderers/where.py": "def render(*args, **kwargs):\n" +
			"    return {'roots': __opts__['pillar_roots']['base'][0]}\n",
		"ext/pillar/asking.py": "def ext_pillar(minion_id, pillar):\n" +
			"    return {'asked': __salt__['asks.other']()}\n",
	}
	var names []string
	for i, text := range values {
		name := fmt.Sprint("file", i)
		names = append(names, name)
		tree["pillar/"+name+".sls"] = name + ": " + text + "\n"
	}
	tree["pillar/top.sls"] = "base: {'*': [" + strings.Join(names, ", ") + "]}\n"
	for path, text := range tree {
		if err := os.WriteFile(filepath.Join(s.root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	renderer := render.New(render.Options{Dir: unpacked.Dir(), Workers: workers}, nil, nil)
	t.Cleanup(func() { renderer.Close() })
	s.deps.Renderer = renderer
	o.Roots = []pillar.Env{{Name: "base", Roots: []string{s.root + "/pillar"}}}
	s.deps.Git = func(context.Context, []any, string, string) ([]pillar.GitFolder, error) {
		return []pillar.GitFolder{{Dir: "/git", Env: "base", Files: gitFiles{
			"top.sls":   "base: {'*': [seen, roots]}\n",
			"seen.sls":  "seen: {{ salt['machine.kernel']() }}" + fact + "{{ salt['machine.again']() }}\n",
			"roots.sls": "#!where\nroots\n",
		}}}, nil
	}
	s.compiler = s.with(t, o)
	o.ExtPillar = nil
	others := s.with(t, o)
	s.orders = func(ctx context.Context, q pythonhost.Question) (any, bool, error) {
		if q.What == "has" {
			return true, true, nil
		}
		made, err := others.Pillar(ctx, named("other"))
		if err != nil {
			return nil, true, err
		}
		who, err := renderer.Render(ctx, render.Source{Data: []byte("{{ 'an' }}")}, "jinja",
			render.Context{}, nil)
		text := value.Str(who) + made.Pillar.String("file0")
		return value.Map{{Key: "return", Value: text}}, true, err
	}
	return s
}

func named(id string) pillar.Request {
	return pillar.Request{ID: id, Saltenv: "base", Grains: value.Map{{Key: "id", Value: id},
		{Key: "kernel", Value: "Linux"}}}
}

type gitFiles map[string]string

func (g gitFiles) List(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(g)), nil
}

func (g gitFiles) Open(_ context.Context, path string) (string, []byte, bool, error) {
	text, found := g[path]
	return "/git/" + path, []byte(text), found, nil
}

// TestPillarsTakeTurns: pillars that hold the only child don't wait for those that hold the only
// render worker and wait for the child.
func TestPillarsTakeTurns(t *testing.T) {
	t.Parallel()
	asking := []any{value.Map{{Key: "asking", Value: []any{}}}}
	git := []any{value.Map{{Key: "git", Value: []any{}}}}
	for _, c := range []struct {
		name, first string
		o           pillar.Options
		want        string // with the id for %s
	}{
		{"files", fact, pillar.Options{}, "[{file0 %s} {file1 %[1]s}]"},
		{"a file whose YAML a worker reads", "omap " + fact, pillar.Options{},
			"[{file0 omap %s} {file1 %[1]s}]"},
		{"a text in a file",
			fact + "{{ salt['slsutil.renderer'](string='{{ salt.facts.about().id }}') }}",
			pillar.Options{}, "[{file0 %s%[1]s} {file1 %[1]s}]"},
		{"a pillar in an ext_pillar", fact, pillar.Options{ExtPillar: asking},
			"[{file0 %s} {file1 %[1]s} {asked another}]"},
		{"an ext_pillar first", fact, pillar.Options{ExtPillar: asking, ExtPillarFirst: true},
			"[{asked another} {file0 %s} {file1 %[1]s}]"},
		{"files of git", fact, pillar.Options{ExtPillar: git},
			"[{file0 %s} {file1 %[1]s} {seen Linux%[1]skept} {roots /git}]"},
		{"files of git after an ext_pillar", fact, pillar.Options{ExtPillar: append(asking, git...),
			ExtPillarFirst: true},
			"[{asked another} {seen Linux%skept} {roots /git} {file0 %[1]s} {file1 %[1]s}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := crowded(t, 1, 1, []string{c.first, fact}, c.o)
			var all sync.WaitGroup
			for n := range 4 {
				all.Go(func() {
					id := fmt.Sprint("web", n)
					made, err := s.compiler.Pillar(t.Context(), named(id))
					if got, want := fmt.Sprint(made.Pillar), fmt.Sprintf(c.want, id); got != want {
						t.Errorf("%s: %s, want %s (%v)", id, got, want, err)
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkPythonPillars makes pillars whose files call Python, with 2 workers and 4 children.
func BenchmarkPythonPillars(b *testing.B) {
	for _, c := range []struct{ files, atOnce int }{{2, 4}, {1, 16}, {2, 16}} {
		b.Run(fmt.Sprintf("files_%d/at_once_%d", c.files, c.atOnce), func(b *testing.B) {
			s := crowded(b, 2, 4, []string{fact, fact}[:c.files], pillar.Options{})
			s.pillar(b, "first", nil)
			var n atomic.Int64
			b.SetParallelism(c.atOnce / runtime.GOMAXPROCS(0))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					s.pillar(b, fmt.Sprint("web", n.Add(1)), nil)
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pillars/s")
		})
	}
}

// TestHasEndsWithItsRequest: whoever asks for a function waits for the only child no longer than
// the request lasts.
func TestHasEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	s := crowded(t, 1, 1, nil, pillar.Options{})
	holder := s.host.Session(pythonhost.Minion{ID: "web1"})
	defer holder.Close()
	if _, err := holder.Has(t.Context(), "facts.about"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	s.deps.Functions.Has(ctx, "facts.about")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it waited for %s", took)
	}
}
