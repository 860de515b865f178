package hosted_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermaster/salt/hosted"
	"clustermaster/salt/pillar"
	"clustermaster/salt/render/rendertest"
	"clustermaster/serve/fileserver"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

// treeScript makes Salt's pillars of trees; it is the one of package pillar.
const treeScript = "../../pillar/testdata/compile.py"

func treesOf(release string) salttrees.Corpus {
	return salttrees.Corpus{Script: treeScript, Least: 5, Release: release,
		Normal: func(text string) string { return text }}
}

// stackCompiler makes pillars below a root, with the options of a tree.
func stackCompiler(t *testing.T, f *hosted.Functions, root string,
	config value.Map) *pillar.Compiler {
	t.Helper()
	roots, _ := config.Get("pillar_roots")
	envs, _ := roots.(value.Map)
	if envs == nil {
		envs = value.Map{{Key: "base", Value: []any{filepath.Join(root, "pillar")}}}
	}
	served := fileserver.Options{FollowSymlinks: true}
	var o pillar.Options
	for _, p := range envs {
		name, dirs := p.Key.(string), texts(envs, p.Key.(string))
		served.Roots = append(served.Roots, fileserver.Env{Name: name, Roots: dirs})
		o.Roots = append(o.Roots, pillar.Env{Name: name, Roots: dirs})
	}
	server, err := fileserver.New(served, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.SafeRenderError, o.MasterOpts = true, config
	o.ExtPillar, _ = config.Get("ext_pillar")
	return pillar.New(pillar.Deps{Files: files{server}, Renderer: rendertest.Renderer(),
		Functions: f}, o, nil, nil)
}

// stackMaster are the options that all trees share.
func stackMaster(t *testing.T) value.Map {
	return value.Map{{Key: "id", Value: "master1"}, {Key: "cachedir", Value: t.TempDir()}}
}

// TestStack compares pillars of Salt's stack through the host with those of each release of Salt.
func TestStack(t *testing.T) {
	t.Parallel()
	grains := salttrees.Grains(t, treeScript)
	for _, release := range slices.Backward(releases) { // the last one's answers are kept
		t.Run(release, func(t *testing.T) {
			if !*update {
				t.Parallel()
			}
			master := stackMaster(t)
			f := functionsOf(t, release, master, 0)
			treesOf(release).Compare(t, *update && release == "3008.3",
				func(t *testing.T, tree *salttrees.Tree, root string) string {
					tree.Place(t, root)
					config, _ := tree.Get("config")
					request, _ := tree.Get("request")
					c := stackCompiler(t, f, root, append(salttrees.YAML(t,
						strings.ReplaceAll(config, "ROOT", root)), master...))
					made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1", Grains: grains,
						Pillarenv: salttrees.YAML(t, request).String("pillarenv")})
					if err != nil {
						t.Fatal(err)
					}
					text, err := value.JSON(made.Pillar, value.JSONStyle{})
					if err != nil {
						t.Fatal(err)
					}
					return salttrees.Indent(t, []byte(strings.ReplaceAll(text, root, "ROOT")))
				})
		})
	}
}

// TestStackIsSalts asks each release of Salt whether the kept answers are its own.
func TestStackIsSalts(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		treesOf(release).StillSalts(t)
	}
}

// TestStackOfUnusualIDs: an id is no pattern for other minions' files, whatever it says.
func TestStackOfUnusualIDs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		"pillar/top.sls": "base: {}",
		"stack.cfg":      "minions/{{ minion_id }}.yml\nminions/{{ minion_id.split('+')[0] }}.yml\n*.common\n",
		"list.cfg":       "[\"minions/{{ minion_id }}.yml\"]\n", "x.common": "common: 1",
		"minions/web1.yml": "web1: secret", "minions/db1.yml": "db1: secret",
		"minions/*.yml": "own: star", "minions/a b.yml": "own: blank", "top": "top: secret",
	})
	master := stackMaster(t)
	f := functionsOf(t, "3008.3", master, 0)
	for _, tt := range []struct {
		id, cfg, want string // want is "" for an error
	}{
		{"web1", "stack.cfg", "[{web1 secret} {common 1}]"},
		{"web1", "list.cfg", "[{web1 secret}]"}, {"web2", "stack.cfg", "[{common 1}]"},
		{"*", "stack.cfg", ""}, {"[w]eb1", "stack.cfg", ""}, {"*+x", "stack.cfg", ""},
		{"????", "stack.cfg", ""}, {"a b", "stack.cfg", ""}, {"a\ntop", "stack.cfg", ""},
		{`a", "../top`, "list.cfg", ""}, {`a","top`, "list.cfg", ""},
		{`minions/\x2a`, "list.cfg", ""},
	} {
		c := stackCompiler(t, f, root, append(value.Map{{Key: "ext_pillar",
			Value: []any{value.Map{{Key: "stack", Value: filepath.Join(root, tt.cfg)}}}}},
			master...))
		made, err := c.Pillar(t.Context(), pillar.Request{ID: tt.id, Grains: value.Map{}})
		if err != nil {
			t.Fatal(err)
		}
		_, failed := made.Pillar.Get("_errors")
		if got := fmt.Sprint(made.Pillar); failed != (tt.want == "") ||
			!failed && got != tt.want || strings.Contains(got, "secret") && tt.id != "web1" {
			t.Errorf("%q with %s: %s, want %s", tt.id, tt.cfg, got, tt.want)
		}
	}
}
