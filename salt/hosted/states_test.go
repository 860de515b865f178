package hosted_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/salt/hosted"
	"clustermaster/salt/mastergrains"
	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/pillar"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/render/rendertest"
	"clustermaster/salt/saltpython"
	"clustermaster/salt/statemodules"
	"clustermaster/serve/fileserver"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

const orchestrationJID = "20260101000000000000"

// orchestrations makes a master's orchestrations of testdata/states below a root, with the
// interpreter exe, "" for none. fired gets what Python asks of the master.
func orchestrations(t testing.TB, root, exe string,
	fired func(string)) *orchestrate.Orchestrator {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "master"))
	if err != nil {
		t.Fatal(err)
	}
	config := salttrees.YAML(t, string(text))
	server := func(dir string) files {
		f, err := fileserver.New(fileserver.Options{FollowSymlinks: true,
			Roots: []fileserver.Env{{Name: "base", Roots: []string{root + dir}}}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return files{f}
	}
	native := modules.New(modules.Deps{Version: "3008.3", Files: server("/files")})
	find := func() (string, error) {
		if exe == "" {
			return "", saltpython.ErrMissing
		}
		return exe, nil
	}
	host := hosted.NewHost(native, pythonhost.Options{Python: find, ConfFile: root + "/master"},
		nil, func(_ context.Context, q pythonhost.Question) (any, bool, error) {
			data, _ := q.Kwargs.Get("data")
			fired(fmt.Sprint(q.What, " ", q.Fun, " ", data))
			return nil, q.What == "event", nil
		}, nil, nil)
	t.Cleanup(func() { host.Close() })
	functions := hosted.New(hosted.Deps{Native: native, Host: host, Find: find,
		Folders: hosted.Folders{ExtensionModules: root + "/ext",
			Own: map[string][]string{"states": {root + "/dirs"}}}})
	c := pillar.New(pillar.Deps{Files: server("/pillar"), Renderer: rendertest.Renderer(),
		Functions: functions}, pillar.Options{Roots: []pillar.Env{{Name: "base",
		Roots: []string{root + "/pillar"}}}, MasterOpts: config}, nil, nil)
	own := mastergrains.Of("master1", "3008.3")
	return orchestrate.New(orchestrate.Deps{
		Files: server("/files"), Renderer: rendertest.Renderer(), Modules: functions,
		Functions: functions.States(statemodules.New(statemodules.Deps{Modules: functions})),
		Grains:    func() value.Map { return own },
		Pillar: func(ctx context.Context, id string, grains value.Map, saltenv, pillarenv string,
			over value.Map) (value.Map, error) {
			made, err := c.Pillar(ctx, pillar.Request{ID: id, Grains: grains, Saltenv: saltenv,
				Pillarenv: pillarenv, Override: over})
			return made.Pillar, err
		},
	}, orchestrate.Options{ID: "master1", AutoOrder: true, Local: true,
		MergeStrategy: "recurse", Opts: config}, nil, nil)
}

// placeStates copies testdata/states, with its root's name in place of ROOT, and the address of a
// web server in place of URL.
func placeStates(t testing.TB, url string) string {
	t.Helper()
	root, from := t.TempDir(), filepath.Join("testdata", "states")
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		full := filepath.Join(root, rel)
		return errors.Join(os.MkdirAll(filepath.Dir(full), 0o755),
			os.WriteFile(full, []byte(strings.NewReplacer("ROOT", root, "URL", url).Replace(
				string(text))), 0o644))
	})
	if err = errors.Join(err, os.WriteFile(filepath.Join(root, "files", "gone"), nil,
		0o644)); err != nil {
		t.Fatal(err)
	}
	return root
}

// stateMasks hide what differs between two runs.
var stateMasks = []struct {
	form *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`"(start_time|duration)": [^,}]+`), `"$1"`},
	{regexp.MustCompile(`"pid": [0-9]+`), `"pid"`},
	{regexp.MustCompile(`Traceback (?:[^"\\]|\\[^n]|\\n  )*\\n`), "TRACEBACK "},
}

// tags returns the returns of states, masked, by their tags in the order of their runs.
func tags(t *testing.T, v any, root string) (order []string, by map[string]string) {
	t.Helper()
	m, ok := v.(value.Map)
	if !ok {
		t.Fatalf("no returns: %v", v)
	}
	by = map[string]string{}
	for _, p := range m {
		ret, ok := p.Value.(value.Map)
		if !ok {
			t.Fatalf("%v: %v", p.Key, p.Value)
		}
		slices.SortFunc(ret, func(a, b value.Pair) int {
			return strings.Compare(value.Str(a.Key), value.Str(b.Key))
		})
		text, err := value.JSON(ret, value.JSONStyle{Indent: -1})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range stateMasks {
			text = m.form.ReplaceAllString(text, m.to)
		}
		tag := strings.ReplaceAll(value.Str(p.Key), root, "ROOT")
		order = append(order, tag)
		by[tag] = strings.ReplaceAll(text, root, "ROOT")
	}
	return order, by
}

// apart returns two texts from shortly before their first difference.
func apart(a, b string) (string, string) {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	i = max(0, i-100)
	return a[i:], b[i:]
}

// made lists what the states have made below a folder: paths, modes and contents.
func made(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root+"/made", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		b.WriteString(info.Mode().String() + " " + path)
		if d.Type().IsRegular() {
			var text []byte
			text, err = os.ReadFile(path)
			b.WriteString(" " + string(text))
		}
		b.WriteString("\n")
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.ReplaceAll(b.String(), root, "ROOT")
}

// TestStatesAreSalts runs an orchestration of states of Salt and of a site, as a trial and for
// real, with each release's own runner and with ours: returns and files are the same.
func TestStatesAreSalts(t *testing.T) {
	t.Parallel()
	yes := true
	runs := []struct {
		args string
		test *bool
	}{{"{mods: o, test: True}", &yes}, {"{mods: o}", nil}, {"{mods: p}", nil}, {"{mods: c}", nil},
		{"{mods: w}", nil}, {"{mods: s}", nil}, {"{mods: t, test: True}", &yes},
		{"{mods: m}", nil}, {"{mods: q}", nil}, {"{mods: r}", nil}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/x" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, "hello")
	}))
	t.Cleanup(web.Close)
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			exe := python(t, release)
			theirs, ours := placeStates(t, web.URL), placeStates(t, web.URL)
			args := []string{filepath.Join("testdata", "states.py"), theirs}
			for _, run := range runs {
				args = append(args, run.args)
			}
			cmd := exec.Command(exe, args...)
			cmd.Env = append(os.Environ(), "LC_ALL=", "LANG=C.UTF-8")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			said, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			var want []json.RawMessage
			if err := json.Unmarshal(said, &want); err != nil {
				t.Fatal(err)
			}
			o := orchestrations(t, ours, exe, func(string) {})
			for i, run := range runs {
				got, err := o.SLS(t.Context(), orchestrate.Request{Mods: []string{run.args[7:8]},
					Test: run.test, JID: orchestrationJID, User: "root"})
				if err != nil {
					t.Fatal(err)
				}
				data, _ := salttrees.YAML(t, string(want[i])).Get("master1")
				wantOrder, wantBy := tags(t, data, theirs)
				gotOrder, gotBy := tags(t, got, ours)
				if !slices.Equal(wantOrder, gotOrder) {
					t.Errorf("%s: order\nSalt %q\nours %q", run.args, wantOrder, gotOrder)
				}
				for _, tag := range wantOrder {
					if wantBy[tag] != gotBy[tag] {
						want, got := apart(wantBy[tag], gotBy[tag])
						t.Errorf("%s: %s\nSalt %s\nours %s", run.args, tag, want, got)
					}
				}
			}
			if want, got := made(t, theirs), made(t, ours); want != got || want == "" {
				t.Errorf("files\n--- Salt\n%s--- ours\n%s", want, got)
			}
		})
	}
}

// TestStatesFireEvents: event.send of Salt fires on the cluster's bus.
func TestStatesFireEvents(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			var asked []string
			o := orchestrations(t, placeStates(t, ""), python(t, release),
				func(text string) { asked = append(asked, text) })
			got, err := o.SLS(t.Context(), orchestrate.Request{Mods: []string{"e"},
				JID: orchestrationJID, User: "root"})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"event my/tag [{grains [{id master1}]} {a 1}]",
				"event my/other []"}
			if m := got.(value.Map); !orchestrate.Succeeded(m) || !slices.Equal(asked, want) {
				t.Errorf("%v: asked %q, want %q", m, asked, want)
			}
		})
	}
}

// TestStatesWithoutSalt: a state that is not native is refused by its name, with the package to
// install; native ones run.
func TestStatesWithoutSalt(t *testing.T) {
	t.Parallel()
	root := placeStates(t, "")
	sls := "one: {test.nop: []}\ntwo: {file.managed: [{name: /nonexistent/x}]}\n"
	if err := os.WriteFile(root+"/files/n.sls", []byte(sls), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := orchestrations(t, root, "", func(string) {}).SLS(t.Context(),
		orchestrate.Request{Mods: []string{"n"}, JID: orchestrationJID, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	_, by := tags(t, got, root)
	want := "Reason: 'file.managed' is not available: " + saltpython.ErrMissing.Error()
	if !strings.Contains(by["file_|-two_|-/nonexistent/x_|-managed"], want) ||
		!strings.Contains(by["test_|-one_|-one_|-nop"], `"result": true`) {
		t.Errorf("%q", by)
	}
}

// runStates writes files below a site's root and applies the SLS file n. It returns the returns as
// JSON, by their tags.
func runStates(t *testing.T, root string, files map[string]string) map[string]string {
	t.Helper()
	writeFiles(t, root, files)
	got, err := orchestrations(t, root, python(t, "3008.3"), func(string) {}).SLS(t.Context(),
		orchestrate.Request{Mods: []string{"n"}, JID: orchestrationJID, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	_, by := tags(t, got, root)
	return by
}

// TestSiteReplacesNativeStates: a state module of the site is used in place of a native one, and a
// module that ends its process fails its own state only.
func TestSiteReplacesNativeStates(t *testing.T) {
	t.Parallel()
	root := placeStates(t, "")
	by := runStates(t, root, map[string]string{
		"ext/states/test.py": "def nop(name):\n    return {'name': name, 'result': True, " +
			"'changes': {}, 'comment': 'of the site'}\n",
		"ext/states/ends.py": "import os\ndef now(name):\n    os._exit(3)\n",
		"files/n.sls":        "one: {test.nop: []}\ntwo: {ends.now: []}\nthree: {test.nop: []}\n",
	})
	for tag, want := range map[string]string{
		"test_|-one_|-one_|-nop":     `"comment": "of the site"`,
		"ends_|-two_|-two_|-now":     "ended its process: exit status 3",
		"test_|-three_|-three_|-nop": `"comment": "of the site"`,
	} {
		if !strings.Contains(by[tag], want) {
			t.Errorf("%s: %s", tag, by[tag])
		}
	}
}

// TestReloadOutlivesTheProcess: a pillar that was made anew for later states is also that of a
// process which takes the place of one that ended.
func TestReloadOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	root := placeStates(t, "")
	by := runStates(t, root, map[string]string{
		"ext/states/ends.py": "import os\ndef now(name):\n    os._exit(3)\n",
		"ext/states/says.py": "def word(name):\n    return {'name': name, 'result': True, " +
			"'changes': {}, 'comment': __pillar__['word']}\n",
		"pillar/data.sls": "word: {{ 'new' if salt['file.file_exists']('" + root +
			"/made/flag') else 'old' }}\n",
		"files/n.sls": "one: {file.touch: [{name: " + root + "/made/flag}, {makedirs: True}, " +
			"{reload_pillar: True}]}\ntwo: {ends.now: []}\nthree: {says.word: []}\n",
	})
	if !strings.Contains(by["says_|-three_|-three_|-word"],
		`"comment": "new"`) {
		t.Errorf("%q", by)
	}
}

// TestCancelledBehindAnother: an orchestration that waits until another one has found the machine's
// grains ends with its caller.
func TestCancelledBehindAnother(t *testing.T) {
	t.Parallel()
	root := placeStates(t, "")
	exe, started := filepath.Join(root, "python"), filepath.Join(root, "started")
	if err := os.WriteFile(exe, []byte("#!/bin/sh\n: >"+started+"\nexec sleep 600\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	o := orchestrations(t, root, exe, func(string) {})
	run := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := o.SLS(ctx, orchestrate.Request{Mods: []string{"e"}, JID: orchestrationJID,
				User: "root"})
			ended <- err
		}()
		return ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := run(ctx)
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(started); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("no interpreter was started")
		}
		<-time.After(10 * time.Millisecond)
	}
	behind, leave := context.WithTimeout(t.Context(), time.Second) // by then it waits
	defer leave()
	second := run(behind)
	select {
	case err := <-second:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case err := <-first:
		t.Errorf("the first one ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Error("it still waits")
	}
	cancel()
	<-first
}
