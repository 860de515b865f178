package pillar_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermaster/fileserver"
	"clustermaster/internal/pytext"
	"clustermaster/internal/yaml11"
	"clustermaster/modules"
	"clustermaster/pillar"
	"clustermaster/render"
	"clustermaster/target"
	"clustermaster/wire"
)

var update = flag.Bool("update", false, "ask Salt for the pillars of testdata/trees again")

// A tree is a file of testdata/trees: options of the master (config), what is asked (request), files, and the pillar that Salt 3008.3
// makes of it (want). Where ours is another, it stands there as well (ours), with the reason (why).
type tree struct {
	name  string
	parts []part
}

type part struct{ name, text string }

func (t *tree) get(name string) (string, bool) {
	i := slices.IndexFunc(t.parts, func(p part) bool { return p.name == name })
	if i < 0 {
		return "", false
	}
	return t.parts[i].text, true
}

func (t *tree) set(name, text string) {
	if i := slices.IndexFunc(t.parts, func(p part) bool { return p.name == name }); i >= 0 {
		t.parts[i].text = text
		return
	}
	t.parts = append(t.parts, part{name, text})
}

func trees(t *testing.T) []*tree {
	t.Helper()
	paths, err := filepath.Glob("testdata/trees/*.txtar")
	if err != nil || len(paths) < 80 {
		t.Fatalf("%d trees: %v", len(paths), err)
	}
	var out []*tree
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tr := &tree{name: strings.TrimSuffix(filepath.Base(path), ".txtar")}
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- "); ok && strings.HasSuffix(name, " --") {
				tr.parts = append(tr.parts, part{name: strings.TrimSuffix(name, " --")})
			} else if n := len(tr.parts); n > 0 {
				tr.parts[n-1].text += line
			}
		}
		out = append(out, tr)
	}
	return out
}

// TestTrees compares our pillars with those of Salt.
func TestTrees(t *testing.T) {
	t.Parallel()
	all := trees(t)
	if *update {
		askSalt(t, all)
	}
	for _, tr := range all {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			got := normal(show(t, compile(t, tr, root), root))
			want, ok := tr.get("want")
			if !ok {
				t.Fatal("no answer of Salt: go test -run TestTrees -update")
			}
			if own, ok := tr.get("ours"); ok {
				if why, _ := tr.get("why"); strings.TrimSpace(why) == "" {
					t.Error("a difference without its reason")
				}
				if normal(own) == normal(want) {
					t.Error("ours is not different any more")
				}
				want = own
			}
			if want = normal(want); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestTreesAreSalts asks Salt again whether the kept answers are still its own.
func TestTreesAreSalts(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	said := saltSays(t)
	for _, tr := range trees(t) {
		want, _ := tr.get("want")
		if got := normal(said[tr.name]); got != normal(want) {
			t.Errorf("%s: Salt now says\n%s\nkept\n%s", tr.name, got, want)
		}
	}
}

func saltSays(t *testing.T) map[string]string {
	t.Helper()
	python := filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"), "salt-3008.3", "bin", "python")
	cmd := exec.Command(python, "testdata/compile.py", "testdata/trees")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var said map[string]json.RawMessage
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string, len(said))
	for name, raw := range said {
		texts[name] = indent(t, raw)
	}
	return texts
}

func askSalt(t *testing.T, all []*tree) {
	t.Helper()
	said := saltSays(t)
	for _, tr := range all {
		tr.set("want", said[tr.name])
		var b strings.Builder
		for _, p := range tr.parts {
			fmt.Fprintf(&b, "-- %s --\n%s", p.name, p.text)
		}
		if err := os.WriteFile("testdata/trees/"+tr.name+".txtar", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func indent(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return b.String() + "\n"
}

// normal leaves out what names the inside of a Python program.
func normal(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if before, _, cut := strings.Cut(line, `\nTraceback `); cut {
			end := "\"\n"
			if strings.HasSuffix(line, ",\n") {
				end = "\",\n"
			}
			line = before + end
		}
		b.WriteString(line)
	}
	return b.String()
}

// show writes a pillar as testdata/compile.py does.
func show(t *testing.T, v any, root string) string {
	t.Helper()
	text, err := pytext.JSON(plain(v, root), pytext.JSONStyle{})
	if err != nil {
		t.Fatal(err)
	}
	return indent(t, []byte(text))
}

func plain(v any, root string) any {
	switch v := v.(type) {
	case wire.Map:
		out, pairs, odd := wire.Map{}, []any{}, false
		for _, p := range v {
			_, isText := p.Key.(string)
			odd = odd || !isText
			key, value := plain(p.Key, root), plain(p.Value, root)
			out, pairs = append(out, wire.Pair{Key: key, Value: value}), append(pairs, []any{key, value})
		}
		if odd {
			return wire.Map{{Key: "__pairs__", Value: pairs}}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e, root)
		}
		return out
	case string:
		return strings.ReplaceAll(v, root, "ROOT")
	case []byte:
		return wire.Map{{Key: "__bytes__", Value: base64.StdEncoding.EncodeToString(v)}}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return wire.Map{{Key: "__float__", Value: pytext.Float(v)}}
		}
	}
	return v
}

// compile makes our pillar of a tree.
func compile(t *testing.T, tr *tree, root string) wire.Map {
	t.Helper()
	for _, p := range tr.parts {
		if !strings.Contains(p.name, "/") {
			continue
		}
		full := filepath.Join(root, p.name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(strings.ReplaceAll(p.text, "ROOT", root)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := yamlMap(t, strings.ReplaceAll(must(tr.get("config")), "ROOT", root))
	request := yamlMap(t, must(tr.get("request")))
	c := newCompiler(t, root, config)
	made, err := c.Pillar(t.Context(), pillar.Request{
		ID: "web1", Grains: grains(t), Saltenv: request.String("saltenv"), Pillarenv: request.String("pillarenv"),
		Override: mapOf(request, "override"), ExtraMinionData: mapOf(request, "extra"), Ext: valueOf(request, "ext"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return made.Pillar
}

func must(s string, _ bool) string { return s }

func valueOf(m wire.Map, key string) any {
	v, _ := m.Get(key)
	return v
}

func mapOf(m wire.Map, key string) wire.Map {
	v, _ := valueOf(m, key).(wire.Map)
	return v
}

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprint(e))
	}
	return out
}

func yamlMap(t *testing.T, text string) wire.Map {
	t.Helper()
	v, err := yaml11.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m, _ := yaml11.ToWire(v).(wire.Map)
	return m
}

// grains are those of testdata/compile.py.
func grains(t *testing.T) wire.Map {
	t.Helper()
	script, err := os.ReadFile("testdata/compile.py")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(script), "GRAINS = \"\"\"")
	text, _, _ = strings.Cut(text, "\"\"\"")
	return yamlMap(t, text)
}

type files struct{ *fileserver.Server }

func (f files) Open(env, path string) (string, []byte, bool, error) { return f.Read(env, path) }

// newCompiler makes a compiler as the master does, for options as in its configuration.
func newCompiler(t *testing.T, root string, config wire.Map) *pillar.Compiler {
	t.Helper()
	o := pillar.Options{
		StateTop: "top.sls", MergeStrategy: config.String("pillar_source_merging_strategy"), SafeRenderError: true,
		OnDemandExtPillar: texts(valueOf(config, "on_demand_ext_pillar")), EnvOrder: texts(valueOf(config, "env_order")),
		ExtPillar: valueOf(config, "ext_pillar"), DecryptPillar: valueOf(config, "decrypt_pillar"), Nodegroups: mapOf(config, "nodegroups"),
		MasterOpts: append(config, wire.Pair{Key: "id", Value: "master1"}),
	}
	if top := config.String("state_top"); top != "" {
		o.StateTop = top
	}
	for name, field := range map[string]*bool{
		"pillar_merge_lists": &o.MergeLists, "pillar_includes_override_sls": &o.IncludesOverrideSLS, "ext_pillar_first": &o.ExtPillarFirst,
		"pillarenv_from_saltenv": &o.PillarenvFromSaltenv, "pillar_safe_render_error": &o.SafeRenderError,
	} {
		if v, ok := valueOf(config, name).(bool); ok {
			*field = v
		}
	}
	roots := mapOf(config, "pillar_roots")
	if roots == nil {
		roots = wire.Map{{Key: "base", Value: []any{filepath.Join(root, "pillar")}}}
	}
	var served fileserver.Options
	served.FollowSymlinks = true
	for _, p := range roots {
		name := p.Key.(string)
		o.Roots = append(o.Roots, pillar.Env{Name: name, Roots: texts(p.Value)})
		served.Roots = append(served.Roots, fileserver.Env{Name: name, Roots: texts(p.Value)})
	}
	server, err := fileserver.New(served, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	fileRoots, err := fileserver.New(fileserver.Options{FollowSymlinks: true, Roots: []fileserver.Env{{Name: "base", Roots: []string{filepath.Join(root, "files")}}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var c *pillar.Compiler
	functions := modules.New(modules.Deps{
		Files: files{fileRoots}, Version: "3008.3", Nodegroup: func(name string) (any, bool) { return o.Nodegroups.Get(name) },
		SDB: func(name string) (wire.Map, bool) { m := mapOf(config, name); return m, m != nil },
		Render: func(ctx context.Context, m modules.Minion, path, text, pipe string, vars wire.Map) (any, error) {
			return c.RenderText(ctx, pillar.Request{ID: m.ID, Grains: m.Grains}, m.Pillar, path, text, pipe, vars)
		},
	})
	c = pillar.New(pillar.Deps{
		Files: files{server}, Renderer: renderer(), Functions: functions,
		Matches: func(ctx context.Context, compound any) ([]string, error) {
			found, err := target.Match(ctx, "compound", compound, "", lone{o.Nodegroups}, true)
			return found.Minions, err
		},
	}, o, nil, nil)
	return c
}

// lone is a world with web1 only, of which nothing is known.
type lone struct{ groups wire.Map }

func (lone) AcceptedIDs() []string               { return []string{"web1"} }
func (lone) DataCache() bool                     { return true }
func (l lone) Nodegroup(name string) (any, bool) { return l.groups.Get(name) }

func (lone) Ask(context.Context, target.Question, func(string, target.Hits)) (string, error) {
	return "", nil
}

// renderer is the one that all trees share.
var renderer = sync.OnceValue(func() *render.Renderer {
	dir, err := os.MkdirTemp("", "pillar-render")
	if err != nil {
		panic(err)
	}
	renderDir = dir
	return render.New(render.Options{Dir: dir}, nil, nil)
})

var renderDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if renderDir != "" {
		renderer().Close()
		os.RemoveAll(renderDir)
	}
	os.Exit(code)
}
