package pillar_test

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/render/rendertest"
	"clustermaster/salt/target"
	"clustermaster/serve/fileserver"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

var update = flag.Bool("update", false, "ask Salt for the pillars of testdata/trees again")

var corpus = salttrees.Corpus{Script: "compile.py", Least: 80, Normal: normal}

// TestTrees compares our pillars with those of Salt.
func TestTrees(t *testing.T) {
	t.Parallel()
	corpus.Compare(t, *update, func(t *testing.T, tree *salttrees.Tree, root string) string {
		return show(t, compile(t, tree, root), root)
	})
}

// TestTreesAreSalts asks Salt again whether the kept answers are still its own.
func TestTreesAreSalts(t *testing.T) {
	t.Parallel()
	corpus.StillSalts(t)
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
	text, err := value.JSON(plain(v, root), value.JSONStyle{})
	if err != nil {
		t.Fatal(err)
	}
	return salttrees.Indent(t, []byte(text))
}

func plain(v any, root string) any {
	switch v := v.(type) {
	case value.Map:
		out, pairs, odd := value.Map{}, []any{}, false
		for _, p := range v {
			_, isText := p.Key.(string)
			odd = odd || !isText
			key, val := plain(p.Key, root), plain(p.Value, root)
			out, pairs = append(out, value.Pair{Key: key, Value: val}), append(pairs,
				[]any{key, val})
		}
		if odd {
			return value.Map{{Key: "__pairs__", Value: pairs}}
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
		return value.Map{{Key: "__bytes__", Value: base64.StdEncoding.EncodeToString(v)}}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return value.Map{{Key: "__float__", Value: value.Float(v)}}
		}
	}
	return v
}

// compile makes our pillar of a tree.
func compile(t *testing.T, tr *salttrees.Tree, root string,
	change ...func(*pillar.Deps, value.Map)) value.Map {
	t.Helper()
	tr.Place(t, root)
	config := salttrees.YAML(t, strings.ReplaceAll(must(tr.Get("config")), "ROOT", root))
	request := salttrees.YAML(t, must(tr.Get("request")))
	c := newCompiler(t, root, config, change...)
	made, err := c.Pillar(t.Context(), pillar.Request{
		ID: "web1", Grains: salttrees.Grains(t, "compile.py"), Saltenv: request.String("saltenv"),
		Pillarenv: request.String("pillarenv"),
		Override:  mapOf(request, "override"), ExtraMinionData: mapOf(request, "extra"),
		Ext: valueOf(request, "ext"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return made.Pillar
}

func must(s string, _ bool) string { return s }

func valueOf(m value.Map, key string) any {
	v, _ := m.Get(key)
	return v
}

func mapOf(m value.Map, key string) value.Map {
	v, _ := valueOf(m, key).(value.Map)
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

type files struct{ *fileserver.Server }

func (f files) Open(env, path string) (string, []byte, bool, error) { return f.Read(env, path) }

// newCompiler makes a compiler as the master does, for options as in its configuration, of parts
// that change may replace.
func newCompiler(t *testing.T, root string, config value.Map,
	change ...func(*pillar.Deps, value.Map)) *pillar.Compiler {
	t.Helper()
	o := pillar.Options{
		StateTop: "top.sls", MergeStrategy: config.String("pillar_source_merging_strategy"),
		SafeRenderError:   true,
		OnDemandExtPillar: texts(valueOf(config, "on_demand_ext_pillar")),
		EnvOrder:          texts(valueOf(config, "env_order")),
		ExtPillar:         valueOf(config, "ext_pillar"),
		DecryptPillar:     valueOf(config, "decrypt_pillar"),
		Nodegroups:        mapOf(config, "nodegroups"),
		MasterOpts:        append(config, value.Pair{Key: "id", Value: "master1"}),
	}
	if top := config.String("state_top"); top != "" {
		o.StateTop = top
	}
	for name, field := range map[string]*bool{
		"pillar_merge_lists": &o.MergeLists, "pillar_includes_override_sls": &o.IncludesOverrideSLS,
		"ext_pillar_first":         &o.ExtPillarFirst,
		"pillarenv_from_saltenv":   &o.PillarenvFromSaltenv,
		"pillar_safe_render_error": &o.SafeRenderError,
	} {
		if v, ok := valueOf(config, name).(bool); ok {
			*field = v
		}
	}
	roots := mapOf(config, "pillar_roots")
	if roots == nil {
		roots = value.Map{{Key: "base", Value: []any{filepath.Join(root, "pillar")}}}
	}
	// As config/settings has it, whatever file_ignore_glob and file_ignore_regex are.
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
	fileRoots, err := fileserver.New(fileserver.Options{FollowSymlinks: true,
		Roots: []fileserver.Env{{Name: "base", Roots: []string{filepath.Join(root, "files")}}}},
		nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var c *pillar.Compiler
	functions := modules.New(modules.Deps{
		Files: files{fileRoots}, Version: "3008.3",
		Nodegroup: func(name string) (any, bool) { return o.Nodegroups.Get(name) },
		SDB: func(name string) (value.Map, bool) {
			m := mapOf(config, name)
			return m,
				m != nil
		},
		Render: func(ctx context.Context, m modules.Minion, path, text, pipe string,
			vars value.Map) (any, error) {
			return c.RenderText(ctx, pillar.Request{ID: m.ID, Grains: m.Grains}, files{fileRoots},
				m.Pillar, path, text, pipe, vars)
		},
	})
	deps := pillar.Deps{
		Files: files{server}, Renderer: rendertest.Renderer(), Functions: functions,
		Matches: func(ctx context.Context, compound any) ([]string, error) {
			found, err := target.Match(ctx, "compound", compound, "", lone{o.Nodegroups}, true)
			return found.Minions, err
		},
	}
	for _, f := range change {
		f(&deps, o.MasterOpts)
	}
	c = pillar.New(deps, o, nil, nil)
	return c
}

// lone is a world with web1 only, of which nothing is known.
type lone struct{ groups value.Map }

func (lone) AcceptedIDs() []string               { return []string{"web1"} }
func (lone) DataCache() bool                     { return true }
func (l lone) Nodegroup(name string) (any, bool) { return l.groups.Get(name) }

func (lone) Ask(context.Context, target.Question, func(string, target.Hits)) (string, error) {
	return "", nil
}

func TestMain(m *testing.M) { rendertest.Main(m) }
