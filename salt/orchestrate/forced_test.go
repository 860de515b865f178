package orchestrate_test

import (
	"os"
	"strings"
	"testing"

	"clustermaster/salt/hosted/hostedtest"
	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/test/answers"
	"clustermaster/value"
)

// TestTreesForced runs the trees with functions and renderers of each release of Salt, through the
// host. The states are compiled as by 3008.3. Each tree has a fork server of its own, for its
// options; the short form takes some trees, and one that was wrong with 3008.3.
func TestTreesForced(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	trees := corpus.Read(t)
	for r, release := range hostedtest.Releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			for i, tree := range trees {
				if !answers.Long() && i%90 != 30*r && tree.Name != "saltenv" {
					continue
				}
				t.Run(tree.Name, func(t *testing.T) {
					t.Parallel()
					want, _ := tree.Get("want")
					root := t.TempDir()
					got := normal(show(t, runTree(t, tree, root,
						func(d *orchestrate.Deps, opts value.Map) {
							d.Modules = hostedtest.Functions(t, release, root,
								d.Modules.(*modules.Modules), opts)
							d.Renderer = hostedtest.Renderer{}
						}), root))
					own, _ := tree.Get("ours") // where the compiler differs on purpose
					// The host knows why it has no function; nothing on a page helps then.
					own = strings.ReplaceAll(own, "see docs/template-functions.md", "'nosuch.function' is not available.")
					if got != normal(want) && got != normal(own) {
						t.Errorf("got\n%s\nSalt says\n%s", got, normal(want))
					}
				})
			}
		})
	}
}
