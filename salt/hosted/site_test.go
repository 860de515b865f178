package hosted_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"clustermaster/salt/hosted"
	"clustermaster/salt/hosted/hostedtest"
	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/render/rendertest"
	"clustermaster/salt/saltpython"
	"clustermaster/serve/fileserver"
	"clustermaster/test/answers"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

func TestMain(m *testing.M) { rendertest.Main(m) }

var releases = hostedtest.Releases

// python is the interpreter of a release of Salt.
func python(t testing.TB, release string) string {
	t.Helper()
	dir := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if dir == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	return filepath.Join(dir, "salt-"+release, "bin", "python3")
}

type files struct{ *fileserver.Server }

func (f files) Open(env, path string) (string, []byte, bool, error) { return f.Read(env, path) }

// site is the testdata's folder of a site, placed below a root.
type site struct {
	root     string
	host     *pythonhost.Host
	deps     pillar.Deps
	compiler *pillar.Compiler
	lines    *lines
	orders   hosted.Orders // what Python code orders
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// place copies the site, with its root's name in place of ROOT.
func place(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	err := filepath.WalkDir("testdata/site", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel("testdata/site", path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		full := filepath.Join(root, rel)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		return os.WriteFile(full, []byte(strings.ReplaceAll(string(text), "ROOT", root)), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func texts(m value.Map, name string) []string {
	v, _ := m.Get(name)
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// newSite joins the packages as the master does. Without an interpreter, exe is "".
func newSite(t testing.TB, exe string, change func(*pythonhost.Options)) *site {
	t.Helper()
	s := &site{root: place(t), lines: &lines{}, orders: noOrders}
	text, err := os.ReadFile(filepath.Join(s.root, "master"))
	if err != nil {
		t.Fatal(err)
	}
	config := salttrees.YAML(t, string(text))
	log := slog.New(slog.NewTextHandler(s.lines, nil))
	server := func(dir string) *fileserver.Server {
		f, err := fileserver.New(fileserver.Options{FollowSymlinks: true,
			Roots: []fileserver.Env{{Name: "base", Roots: []string{dir}}}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	native := modules.New(modules.Deps{
		Version: "3008.3", Files: files{server(s.root + "/files")},
		Mine: func(_ context.Context, _ string, tgt, fun any, _ string) (value.Map, error) {
			return value.Map{{Key: "db1", Value: []any{tgt, fun}}}, nil
		},
		Render: func(ctx context.Context, m modules.Minion, path, text, pipe string,
			vars value.Map) (any, error) {
			return s.compiler.RenderText(ctx, pillar.Request{ID: m.ID, Grains: m.Grains}, nil, m.Pillar,
				path, text, pipe, vars)
		},
	})
	find := func() (string, error) {
		if exe == "" {
			return "", saltpython.ErrMissing
		}
		return exe, nil
	}
	o := pythonhost.Options{Python: find, ConfFile: s.root + "/master"}
	if change != nil {
		change(&o)
	}
	s.host = hosted.NewHost(native, o, nil,
		func(ctx context.Context, q pythonhost.Question) (any, bool, error) {
			return s.orders(ctx, q)
		}, log, nil)
	t.Cleanup(func() { s.host.Close() })
	functions := hosted.New(hosted.Deps{
		Native: native, Host: s.host, Find: find, Log: log,
		Folders: hosted.Folders{ExtensionModules: config.String("extension_modules"),
			ModuleDirs: texts(config, "module_dirs")},
	})
	ext, _ := config.Get("ext_pillar")
	s.deps = pillar.Deps{Files: files{server(s.root + "/pillar")}, Renderer: rendertest.Renderer(),
		Functions: functions}
	s.compiler = s.with(t, pillar.Options{
		Roots:      []pillar.Env{{Name: "base", Roots: []string{s.root + "/pillar"}}},
		MasterOpts: config, ExtPillar: ext,
	})
	return s
}

func (s *site) with(t testing.TB, o pillar.Options) *pillar.Compiler {
	t.Helper()
	return pillar.New(s.deps, o, slog.New(slog.NewTextHandler(s.lines, nil)), nil)
}

func (s *site) pillar(t testing.TB, id string, grains value.Map) value.Map {
	t.Helper()
	made, err := s.compiler.Pillar(t.Context(),
		pillar.Request{ID: id, Grains: grains.Set("id", id)})
	if err != nil {
		t.Fatal(err)
	}
	return made.Pillar
}

// normal leaves out what names the inside of a Python program, and the root.
func normal(t testing.TB, v value.Map, root string) string {
	t.Helper()
	text, err := value.JSON(v, value.JSONStyle{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", " "); err != nil {
		t.Fatal(err)
	}
	return cut(strings.ReplaceAll(b.String(), root, "ROOT"))
}

func cut(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if before, _, traced := strings.Cut(line, `\nTraceback `); traced {
			line = before + "\"\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

var update = flag.Bool("update", false,
	"ask each release of Salt for the pillars of testdata/site again")

// ask returns the pillars that a release of Salt makes of a site.
func ask(t *testing.T, release, root string) string {
	t.Helper()
	cmd := exec.Command(python(t, release), "testdata/compile.py", root, "web1", "db1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	said, err := value.UnpackMap(out)
	if err != nil {
		t.Fatal(err)
	}
	return normal(t, said, root)
}

// TestSiteAsSalt compares the pillars of a site with modules, ext_pillars and renderers of its own
// with those of each release of Salt.
func TestSiteAsSalt(t *testing.T) {
	t.Parallel()
	grains := salttrees.Grains(t, "compile.py")
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, python(t, release), nil)
			kept := filepath.Join("testdata", "want-"+release+".json")
			if *update {
				if err := os.WriteFile(kept, []byte(ask(t, release, s.root)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(kept)
			if err != nil {
				t.Fatalf("no answer of Salt: run with -update: %v", err)
			}
			got := normal(t, value.Map{{Key: "web1", Value: s.pillar(t, "web1", grains)},
				{Key: "db1", Value: s.pillar(t, "db1", grains)}}, s.root)
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if n := s.host.Status().Started; n != 1 {
				t.Errorf("%d children for two pillars", n)
			}
		})
	}
}

// TestSiteIsSalts asks Salt again whether the kept answers are still its own.
func TestSiteIsSalts(t *testing.T) {
	t.Parallel()
	answers.OnlyLong(t, false)
	for _, release := range releases {
		want, err := os.ReadFile(filepath.Join("testdata", "want-"+release+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, release, place(t)); got != string(want) {
			t.Errorf("%s: Salt now says\n%s\nkept\n%s", release, got, want)
		}
	}
}

// TestNoPython makes the site's pillar without an interpreter: what is native works, the rest is
// named with what to install.
func TestNoPython(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", nil)
	got := normal(t, s.pillar(t, "web1", salttrees.Grains(t, "compile.py")), s.root)
	for _, text := range []string{
		`"plain": "web1"`, `Failed to load ext_pillar owners: no Python with Salt is installed`,
		`has no attribute 'facts.about'`, `"commanded": true`,
	} {
		if !strings.Contains(got, text) {
			t.Errorf("%s is not in\n%s", text, got)
		}
	}
}

// TestNativePillarsStartNothing makes pillars that call native functions only.
func TestNativePillarsStartNothing(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable() // any that must not be run
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, exe, nil)
	sls := "id: {{ salt['grains.get']('id') }}\nlist: {{ salt.pillar.get('x', 1) }}\nthere: {{ 'config.get' in salt }}\n"
	for name, text := range map[string]string{"top.sls": "base: {'*': [plain]}\n",
		"plain.sls": sls} {
		if err := os.WriteFile(filepath.Join(s.root, "pillar", name), []byte(text),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	native := pillar.Options{Roots: []pillar.Env{{Name: "base",
		Roots: []string{s.root + "/pillar"}}}}
	s.compiler = s.with(t, native)
	count := 200
	if os.Getenv("CLUSTERMASTER_LONG") != "" {
		count = 10_000
	}
	for i := range count {
		made := s.pillar(t, fmt.Sprintf("m%d", i), value.Map{})
		if got := made.String("id"); got != fmt.Sprintf("m%d", i) {
			t.Fatalf("pillar %v", made)
		}
	}
	if st := s.host.Status(); st.Started != 0 || st.PID != 0 {
		t.Errorf("native pillars started %+v", st)
	}
}

// TestOtherPillarenv: what Salt makes a pillar of another environment of is read each time, no
// render with a part of it is kept, and the pillar is written to no file.
func TestOtherPillarenv(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			writeFiles(t, root, map[string]string{"base/top.sls": "base: {'*': [app]}",
				"base/app.sls": "got: {{ salt['pillar.get']('pw', pillarenv='prod') }}",
				"prod/top.sls": "prod: {'*': [db]}"})
			master := value.Map{
				{Key: "id", Value: "master1"}, {Key: "cachedir", Value: root + "/cache"},
				{Key: "pillar_cache", Value: true},
				{Key: "pillar_roots", Value: value.Map{{Key: "base", Value: []any{root + "/base"}},
					{Key: "prod", Value: []any{root + "/prod"}}}},
			}
			c := stackCompiler(t, functionsOf(t, release, master, 0), root, master)
			for _, word := range []string{"first-secret", "rotated-secret"} {
				writeFiles(t, root, map[string]string{"prod/db.sls": "pw: " + word})
				made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1", Grains: value.Map{}})
				if err != nil {
					t.Fatal(err)
				}
				if got := made.Pillar.String("got"); got != word {
					t.Errorf("got %v, want %s", made.Pillar, word)
				}
			}
			err := filepath.WalkDir(root+"/cache", func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				text, err := os.ReadFile(path)
				if strings.Contains(string(text), "secret") {
					t.Errorf("%s holds the pillar", path)
				}
				return err
			})
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		})
	}
}

// noOrders is a master of which Python code orders nothing.
func noOrders(context.Context, pythonhost.Question) (any, bool, error) { return nil, false, nil }
