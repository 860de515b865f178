package hosted_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/salt/hosted"
	"clustermaster/salt/modules"
	"clustermaster/salt/pythonhost"
	"clustermaster/test/answers"
	"clustermaster/value"
)

// classTree is a folder of saltclass. Each of its nodes shows one case.
var classTree = map[string]string{
	"nodes/plain.yml":         "classes:\n  - base\n  - app.web\nstates:\n  - own\n",
	"nodes/deep/er/below.yml": "classes: [base]\n",
	"nodes/empty.yml":         "",
	"nodes/list.yml":          "- a\n- b\n",
	"nodes/broken.yml":        "a: [1,\n",
	"nodes/badclass.yml":      "classes: [failing]\n",
	"nodes/globs.yml":         "classes:\n  - app.w*\n  - 'nosuch.*'\n",
	"nodes/nested.yml":        "environment: prod\nclasses: [a, l]\n",
	"nodes/envs.yml":          "classes: [staging, base]\n",
	"nodes/envlast.yml":       "environment: dev\nclasses: [staging]\n",
	"nodes/initfile.yml":      "classes: [role]\n",
	"nodes/dotted.yml":        "classes: [x.y]\n",
	"nodes/twice.yml":         "classes: [base, base, app.web]\nstates: [ssh, own, own]\n",
	"nodes/cycle.yml":         "classes: [loop1]\n",
	"nodes/jinja.yml":         "classes:\n  - {{ __grains__['os'] | lower }}\n{% if __opts__.id == minion_id %}states: [of-{{ minion_id }}]{% endif %}\n",
	"nodes/pillared.yml":      "pillars: {role: db, list: [a]}\nclasses: [sees, sees2]\n",
	"nodes/replaced.yml":      "pillars: {list: [a]}\nclasses: [caret, shows]\n",
	"nodes/replacing.yml":     "classes: [caret, shows]\n",
	"nodes/lenient.yml":       "states: [x{{ nosuch }}y]\n",
	"nodes/strict.yml":        "states: [{{ nosuch.deeper }}]\n",
	"nodes/imports.yml":       "{% from 'macros.jinja' import name %}states: [{{ name('q') }}]\n",
	"nodes/macros.jinja":      "{% macro name(x) %}made-{{ x }}{% endmacro %}",
	"nodes/outside.yml":       "{% include '../classes/base.yml' %}\n",
	"nodes/marked.yml":        "#!jinja|json\nstates: [plain]\n",
	"nodes/nothing.yml":       "pillars: {a: 1}\n",
	"nodes/missing.yml":       "classes: [nosuch]\nstates: [own]\n",
	"classes/base.yml":        "states: [ssh, ntp]\npillars: {base: true}\n",
	"classes/failing.yml":     "states: [{% bad %}]\n",
	"classes/app/web.yml":     "classes: [base]\nstates: [nginx, ssh]\n",
	"classes/app/db.yml":      "states: [postgres]\n",
	"classes/app/init.yml":    "states: [app]\n",
	"classes/role/init.yml":   "states: [role]\n",
	"classes/staging.yml":     "environment: staging\nstates: [s]\n",
	"classes/x.y.yml":         "states: [straight]\n",
	"classes/x/y.yml":         "states: [folder]\n",
	"classes/a.yml":           "classes: [b]\nstates: [a]\n",
	"classes/b.yml":           "classes: [c]\nstates: [b]\n",
	"classes/c.yml":           "states: [c]\n",
	"classes/l.yml":           "classes: [m, b]\nstates: [l]\n",
	"classes/m.yml":           "states: [m]\n",
	"classes/loop1.yml":       "classes: [loop2]\nstates: [one]\n",
	"classes/loop2.yml":       "classes: [loop1]\nstates: [two]\n",
	"classes/debian.yml":      "states: [apt]\n",
	"classes/sees.yml":        "states: [role-{{ __pillar__.role }}]\npillars: {role: web, list: [b]}\n",
	"classes/sees2.yml":       "states: ['role-{{ __pillar__.role }}-{{ __pillar__.list | join('+') }}']\n",
	"classes/caret.yml":       "pillars: {list: ['^', z]}\n",
	"classes/shows.yml":       "states: ['{{ __pillar__.list | join('+') }}']\n",
	"classes/blank.yml":       "# nothing\n",
}

// writeFiles writes files below a folder.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// placeClasses writes classTree, and lists the ids to ask for.
func placeClasses(t *testing.T) (dir string, ids []string) {
	t.Helper()
	dir = t.TempDir()
	writeFiles(t, dir, classTree)
	for name := range classTree {
		if id, ok := strings.CutSuffix(filepath.Base(name), ".yml"); ok &&
			strings.HasPrefix(name, "nodes/") {
			ids = append(ids, id)
		}
	}
	ids = append(ids, "unknown", "*", "../classes/base")
	slices.Sort(ids)
	return dir, ids
}

// tops are states by environment, by minion; null where the module fails.
type tops map[string]map[string][]string

// saltsTops are the answers of a release of Salt.
func saltsTops(t *testing.T, release, dir string, ids []string) (said tops) {
	t.Helper()
	asked, err := json.Marshal(map[string]any{"ids": ids,
		"grains": map[string]string{"os": "Debian"}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t, release), "testdata/saltclass.py", dir)
	cmd.Stdin = bytes.NewReader(asked)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &said)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return said
}

func keptTops(t *testing.T, release string) (path string, kept tops) {
	t.Helper()
	path = filepath.Join("testdata", "saltclass-"+release+".json")
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	if err != nil && !*update {
		t.Fatalf("no answers of Salt: run with -update: %v", err)
	}
	return path, kept
}

// functionsOf are the functions of a release of Salt, for a master with these options.
func functionsOf(t *testing.T, release string, opts value.Map,
	limit time.Duration) *hosted.Functions {
	t.Helper()
	exe := python(t, release)
	find := func() (string, error) { return exe, nil }
	native := modules.New(modules.Deps{Version: release})
	log := slog.New(slog.DiscardHandler)
	host := hosted.NewHost(native, pythonhost.Options{Python: find, Opts: opts, Timeout: limit},
		opts, noOrders, log, nil)
	t.Cleanup(func() { host.Close() })
	return hosted.New(hosted.Deps{Native: native, Host: host, Find: find, Log: log})
}

// classesOf are the functions of a master with the module saltclass.
func classesOf(t *testing.T, release, dir string, limit time.Duration) *hosted.Functions {
	return functionsOf(t, release, value.Map{{Key: "id", Value: "master1"},
		{Key: "cachedir", Value: t.TempDir()},
		{Key: "master_tops", Value: value.Map{{Key: "saltclass",
			Value: value.Map{{Key: "path", Value: dir}}}}}}, limit)
}

func askTop(ctx context.Context, f *hosted.Functions, id string) (value.Map, error) {
	return f.Top(ctx, "saltclass",
		value.Map{{Key: "id", Value: id}, {Key: "saltenv", Value: "base"}},
		value.Map{{Key: "os", Value: "Debian"}})
}

// TestSaltclass compares what saltclass says through the host with what each release of Salt says
// for the same folder.
func TestSaltclass(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			dir, ids := placeClasses(t)
			path, want := keptTops(t, release)
			if *update {
				want = saltsTops(t, release, dir, ids)
				b, err := json.MarshalIndent(want, "", " ")
				if err == nil {
					err = os.WriteFile(path, append(b, '\n'), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if len(want) != len(ids) {
				t.Fatalf("%d answers for %d ids: run with -update", len(want), len(ids))
			}
			f := classesOf(t, release, dir, 0)
			for _, id := range ids {
				said, err := askTop(t.Context(), f, id)
				var got map[string][]string
				if err == nil {
					got = map[string][]string{}
					for _, p := range said {
						list := []string{}
						for _, v := range p.Value.([]any) {
							list = append(list, v.(string))
						}
						got[p.Key.(string)] = list
					}
				}
				if !reflect.DeepEqual(got, want[id]) {
					t.Errorf("%s: got %v (%v), Salt says %v", id, got, err, want[id])
				}
			}
		})
	}
}

// TestSaltclassIsSalts asks each release of Salt whether the kept answers are still its own.
func TestSaltclassIsSalts(t *testing.T) {
	t.Parallel()
	answers.OnlyLong(t, false)
	dir, ids := placeClasses(t)
	for _, release := range releases {
		_, kept := keptTops(t, release)
		if now := saltsTops(t, release, dir, ids); !reflect.DeepEqual(now, kept) {
			t.Errorf("%s says %v, kept is %v", release, now, kept)
		}
	}
}

// TestSaltclassLinksThatLeadBack: the host ends a walk through links back to a parent folder.
func TestSaltclassLinksThatLeadBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"nodes/web1.yml": "states: [a]\n"})
	for _, name := range []string{"nodes/a", "nodes/b", "nodes/c"} {
		if err := os.Symlink(".", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := askTop(t.Context(), classesOf(t, "3008.3", dir, time.Second), "web1")
	if err == nil || !strings.Contains(err.Error(), "python_timeout") {
		t.Errorf("no bound: %v", err)
	}
}
