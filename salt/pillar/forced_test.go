package pillar_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"clustermaster/salt/hosted/hostedtest"
	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/test/answers"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

// otherAnswers are Salt's answers of a release that differ from those of the trees' own.
func otherAnswers(t *testing.T, release string, trees []*salttrees.Tree) map[string]string {
	t.Helper()
	path := filepath.Join("testdata", "trees-"+release+".json")
	kept := map[string]string{}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &kept)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if release == "3008.3" || !*update && !answers.Long() {
		return kept
	}
	of := corpus
	of.Release = release
	said, differ := of.Ask(t, "testdata/trees"), map[string]string{}
	for _, tree := range trees {
		if want, _ := tree.Get("want"); normal(want) != normal(said[tree.Name]) {
			differ[tree.Name] = normal(said[tree.Name])
			if !*update && kept[tree.Name] != differ[tree.Name] {
				t.Errorf("%s: Salt %s now says\n%s\nkept\n%s", tree.Name, release,
					differ[tree.Name], kept[tree.Name])
			}
		}
	}
	if *update {
		b, err := json.MarshalIndent(differ, "", " ")
		if err == nil {
			err = os.WriteFile(path, append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return differ
}

// notForced are trees whose answer through the host is another, with the reason.
var notForced = map[string]string{
	"ext_file_tree":          "the master that knows which minions a node group has is missing here",
	"ext_file_tree_relative": "bytes that are valid UTF-8 arrive as text",
	"ext_file_tree_newline":  "bytes that are valid UTF-8 arrive as text",
}

// compiled are trees whose answer depends on Salt's compiler of pillars, not on what the host runs.
// The compiler here does as 3008.3, whichever release the host has.
var compiled = []string{"ext_first", "ext_malformed", "top_leading_dot", "top_same_target_twice",
	"top_two_envs"}

// TestTreesForced makes the pillars of the trees with functions, ext_pillars and renderers of each
// release of Salt, through the host. Each tree has a fork server of its own, for its options; the
// short form takes some trees.
func TestTreesForced(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	trees := corpus.Read(t)
	for r, release := range hostedtest.Releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			other := otherAnswers(t, release, trees)
			for i, tree := range trees {
				if !answers.Long() && i%30 != 10*r {
					continue
				}
				t.Run(tree.Name, func(t *testing.T) {
					t.Parallel()
					want, differs := other[tree.Name]
					if !differs || slices.Contains(compiled, tree.Name) {
						want, _ = tree.Get("want")
					}
					root := t.TempDir()
					got := normal(show(t, compile(t, tree, root,
						func(d *pillar.Deps, opts value.Map) {
							d.Functions = hostedtest.Functions(t, release, root,
								d.Functions.(*modules.Modules), opts)
							d.Renderer = hostedtest.Renderer{}
						}), root))
					own, _ := tree.Get("ours") // where the compiler differs on purpose
					why, known := notForced[tree.Name]
					if known != (got != normal(want) && got != normal(own)) {
						t.Errorf("got\n%s\nSalt says\n%s\n%s", got, normal(want), why)
					}
				})
			}
		})
	}
}
