package reactor

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"clustermaster/salt/hosted/hostedtest"
	"clustermaster/salt/modules"
	"clustermaster/salt/render"
	"clustermaster/salt/render/rendertest"
	"clustermaster/value"
)

// TestSitesRenderers: files that the master renders for itself may be written for a renderer of the
// site, with the variables of their event.
func TestSitesRenderers(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "ext", "renderers"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "ext", "renderers", "told.py"), []byte(
		"def render(data, saltenv='base', sls='', **kwargs):\n"+
			"    return {'tag': kwargs['tag'], 'pillar': '_pillar_rend' in kwargs}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	f := hostedtest.Functions(t, "3008.3", root, modules.New(modules.Deps{Version: "3008.3"}),
		value.Map{{Key: "id", Value: "master1"}, {Key: "extension_modules", Value: root + "/ext"}})
	v, err := rendertest.Renderer().Render(t.Context(), render.Source{Path: root + "/a.sls",
		Data: []byte("#!told\nx\n")}, "jinja|yaml",
		render.Context{Vars: value.Map{{Key: "tag", Value: "my/tag"}}},
		Host{Functions: f, Minion: modules.Minion{ID: "master1"}})
	want := value.Map{{Key: "tag", Value: "my/tag"}, {Key: "pillar", Value: false}}
	if err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("got %v, %v", v, err)
	}
}
