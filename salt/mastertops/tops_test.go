package mastertops

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"clustermaster/salt/render/rendertest"
	"clustermaster/test/answers"
	"clustermaster/value"
)

var update = flag.Bool("update", false, "ask Salt for testdata/answers.json again")

func TestMain(m *testing.M) { rendertest.Main(m) }

// tree is a folder of saltclass. Each of its nodes shows one case.
var tree = map[string]string{
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

func writeTree(t *testing.T) (dir string, ids []string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range tree {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if id, ok := strings.CutSuffix(filepath.Base(name), ".yml"); ok &&
			strings.HasPrefix(name, "nodes/") {
			ids = append(ids, id)
		}
	}
	ids = append(ids, "unknown")
	slices.Sort(ids)
	return dir, ids
}

var grains = value.Map{{Key: "os", Value: "Debian"}}

// salts are Salt's answers; null where Salt fails.
func salts(t *testing.T, dir string, ids []string) map[string]map[string][]string {
	t.Helper()
	asked, err := json.Marshal(map[string]any{"ids": ids,
		"grains": map[string]string{"os": "Debian"}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"), "salt-3008.3", "bin",
		"python"), "testdata/reference.py", dir)
	cmd.Stdin = bytes.NewReader(asked)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
	}
	var answers map[string]map[string][]string
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

const answersFile = "testdata/answers.json"

// TestSaltclass compares our answers with Salt's for the same folder.
func TestSaltclass(t *testing.T) {
	t.Parallel()
	dir, ids := writeTree(t)
	if *update {
		b, err := json.MarshalIndent(salts(t, dir, ids), "", " ")
		if err == nil {
			err = os.WriteFile(answersFile, append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]map[string][]string
	if err := json.Unmarshal(b, &want); err != nil || len(want) != len(ids) {
		t.Fatalf("%d answers for %d ids, %v: run with -update", len(want), len(ids), err)
	}
	c := classes{path: dir, renderer: rendertest.Renderer(), log: slog.New(slog.DiscardHandler)}
	for _, id := range ids {
		said, err := c.states(t.Context(),
			Request{ID: id, Grains: grains,
				Opts: value.Map{{Key: "id", Value: id}, {Key: "saltenv", Value: "base"}}})
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
}

// TestAnswersAreSalts asks Salt whether the kept answers are still its own.
func TestAnswersAreSalts(t *testing.T) {
	t.Parallel()
	answers.OnlyLong(t, false)
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	dir, ids := writeTree(t)
	b, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]map[string][]string
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if now := salts(t, dir, ids); !reflect.DeepEqual(now, want) {
		t.Errorf("Salt says %v, kept is %v", now, want)
	}
}

func dict(pairs ...any) (m value.Map) {
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}

// TestAsk joins the answers of several modules. It leaves out a module that fails.
func TestAsk(t *testing.T) {
	t.Parallel()
	dir, _ := writeTree(t)
	var ran string
	prints := "#!jinja\nenvironment: staging\nclasses: [from-command, s]\n"
	output := func(_ context.Context, command string) (string, error) {
		ran = command
		return prints, nil
	}
	made, err := New(dict("ext_nodes", "nodes --of", "saltclass", dict("path", dir)),
		Deps{Output: output, Renderer: rendertest.Renderer(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(id string) value.Map {
		return made.Ask(t.Context(), Request{ID: id, Grains: grains, Opts: dict("id", id)})
	}
	if got, want := ask("envlast"), dict("staging", []any{"from-command", "s"}, "dev",
		[]any{"s"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if ran != "nodes --of envlast" {
		t.Errorf("ran %s", ran)
	}
	if ask("a b'; x"); ran != `nodes --of 'a b'\''; x'` {
		t.Errorf("ran %s", ran)
	}
	ran = ""
	for _, id := range []string{"-rf", "a\nb"} {
		if got := ask(id); ran != "" || len(got) != 1 {
			t.Errorf("%q: ran %q, got %v", id, ran, got)
		}
	}
	if got, want := ask("broken"), dict("staging",
		[]any{"from-command", "s"}); !reflect.DeepEqual(got, want) {
		t.Errorf("without a module that fails: %v", got)
	}
	prints = "classes: {one: {}, two: null}\n"
	if got, want := ask("nested"), dict("base", []any{"one", "two"}, "prod",
		[]any{"c", "b", "a", "m", "l"}); !reflect.DeepEqual(got, want) {
		t.Errorf("classes as a map: %v", got)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for want, option := range map[string]value.Map{
		"no module reclass": dict("reclass", dict()), "is not a command": dict("ext_nodes", int64(1)),
		"is not a map": dict("saltclass", "x"),
		"with a path":  dict("saltclass", dict("path", int64(1))),
	} {
		if _, err := New(option, Deps{Log: slog.New(slog.DiscardHandler)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", option, err, want)
		}
	}
}

// TestLinksThatLeadBack: links back to a parent folder end in an error, not in an endless walk.
func TestLinksThatLeadBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "nodes"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nodes/a", "nodes/b", "nodes/c"} {
		if err := os.Symlink(".", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	left := 10_000
	if err := walk(filepath.Join(dir, "nodes"), &left, func(string) {}); err == nil {
		t.Error("no bound")
	}
}
