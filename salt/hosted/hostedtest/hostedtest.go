// Package hostedtest has Salt's own Python do what is native otherwise, for tests that compare both
// with Salt.
package hostedtest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/salt/hosted"
	"clustermaster/salt/modules"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/render"
	"clustermaster/salt/render/rendertest"
	"clustermaster/value"
)

// Releases are those of Salt that the host runs.
var Releases = []string{"3006.28", "3007.15", "3008.3"}

// Renderer has the host run each stage of a file, also those of native renderers.
type Renderer struct{}

// Render implements the renderers of packages pillar and orchestrate. The Host must be a
// render.StageRunner.
func (Renderer) Render(ctx context.Context, src render.Source, pipe string, c render.Context,
	h render.Host) (any, error) {
	text := string(src.Data)
	if strings.TrimSpace(text) == "" {
		return rendertest.Renderer().Render(ctx, src, pipe, c, h)
	}
	return Pipe(text, pipe, func(name, args string, v any) (any, error) {
		return h.(render.StageRunner).RunStage(ctx, name, args, v, src, c.Vars)
	})
}

// Pipe runs the stages of a text's first line, or of pipe.
func Pipe(text, pipe string, run func(name, args string, v any) (any, error)) (v any, err error) {
	if first, _, _ := strings.Cut(text, "\n"); strings.HasPrefix(first, "#!") &&
		!strings.HasPrefix(first, "#!/") {
		pipe = strings.TrimSpace(first)[2:]
	}
	if pipe == "yaml_jinja" { // Salt's former name
		pipe = "jinja|yaml"
	}
	v = text
	for stage := range strings.SplitSeq(pipe, "|") {
		name, args, _ := strings.Cut(strings.TrimSpace(stage), " ")
		if v, err = run(name, strings.TrimSpace(args), v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// extPillars are native ones.
var extPillars = []string{"cmd_json", "cmd_yaml", "file_tree"}

// Functions are those of a release of Salt, also those that are native. Functions about the
// cluster's data stay native, as always. root is the master's folder, opts are options besides.
func Functions(t testing.TB, release, root string, native *modules.Modules,
	opts value.Map) *hosted.Functions {
	t.Helper()
	own := t.TempDir() // as if the site had modules of these names
	place := func(kind, module string) {
		path := filepath.Join(own, kind, module+".py")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range native.Names() {
		module, _, _ := strings.Cut(name, ".")
		place("modules", module)
	}
	for _, name := range extPillars {
		place("pillar", name)
	}
	base := func(dir string) value.Map {
		return value.Map{{Key: "base", Value: []any{filepath.Join(root, dir)}}}
	}
	all := value.Map{{Key: "root_dir", Value: root}, {Key: "cachedir", Value: root + "/cache"},
		{Key: "pki_dir", Value: root + "/pki"}, {Key: "conf_file", Value: root + "/master"},
		{Key: "pillar_roots", Value: base("pillar")}, {Key: "file_roots", Value: base("files")}}
	for _, p := range opts {
		all = all.Set(value.Str(p.Key), p.Value)
	}
	if err := errors.Join(os.MkdirAll(root+"/pki/minions", 0o755), os.MkdirAll(root+"/cache", 0o755),
		os.WriteFile(root+"/pki/minions/web1", []byte("key"), 0o644)); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"), "salt-"+release, "bin", "python3")
	find := func() (string, error) { return exe, nil }
	log := slog.New(slog.DiscardHandler)
	host := hosted.NewHost(native, pythonhost.Options{Python: find, Opts: all}, opts,
		func(context.Context, pythonhost.Question) (any, bool, error) { return nil, false, nil },
		log, nil)
	t.Cleanup(func() { host.Close() })
	return hosted.New(hosted.Deps{Native: native, Host: host, Find: find, Log: log,
		Folders: hosted.Folders{ExtensionModules: own}})
}
