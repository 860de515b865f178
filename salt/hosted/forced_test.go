package hosted_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"clustermaster/salt/hosted/hostedtest"
	"clustermaster/salt/pythonhost"
	"clustermaster/test/answers"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

// renderDir is the corpus of package render.
const renderDir = "../render/testdata"

// rendered is a template of the corpus of package render, and Salt's answer: a text, a packed value
// in base64, or an error.
type rendered struct {
	Name  string         `json:"name"`
	SLS   string         `json:"sls,omitempty"`
	In    string         `json:"-"`
	Opts  map[string]any `json:"-"`
	Text  string         `json:"text,omitempty"`
	Value string         `json:"value,omitempty"`
	Error string         `json:"error,omitempty"`
}

// renderCorpus reads the templates as package render does.
func renderCorpus(t *testing.T) (out []rendered) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(renderDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for line := range strings.Lines(read("expressions.txt")) {
		line = strings.TrimSuffix(line, "\n")
		out = append(out, rendered{Name: line, SLS: "t", In: "#!jinja\nx: {{ " + line + " }}\n",
			Opts: map[string]any{}})
	}
	for block := range strings.SplitSeq("\n"+read("templates.txt"), "\n=== ") {
		head, body, ok := strings.Cut(block, "\n")
		if !ok {
			continue
		}
		c := rendered{Name: head, SLS: "t", In: body + "\n", Opts: map[string]any{}}
		if name, more, ok := strings.Cut(head, " | "); ok {
			c.Name = name
			if sls, ok := strings.CutPrefix(more, "sls="); ok {
				c.SLS = sls
			} else if err := json.Unmarshal([]byte(strings.TrimPrefix(more, "opts=")),
				&c.Opts); err != nil {
				t.Fatal(err)
			}
		}
		if c.Name == "no newline at the end" {
			c.In = strings.TrimSuffix(c.In, "\n")
		}
		out = append(out, c)
	}
	if len(out) < 450 {
		t.Fatalf("%d templates", len(out))
	}
	return out
}

// askRender has a release of Salt render the corpus.
func askRender(t *testing.T, release string, all []rendered) (out []rendered) {
	t.Helper()
	type question struct {
		Name string         `json:"name"`
		SLS  string         `json:"sls"`
		Text string         `json:"text"`
		Opts map[string]any `json:"opts"`
	}
	var asked []question
	for _, c := range all {
		asked = append(asked, question{c.Name, c.SLS, c.In, c.Opts})
	}
	in, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "testdata", "roots") // the script writes there
	if err := os.CopyFS(filepath.Dir(roots), os.DirFS(renderDir)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t, release), filepath.Join(renderDir, "reference.py"), roots)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	said, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(said, &out)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	for i := range out {
		out[i].Error = words(out[i].Error)
	}
	return out
}

var frames = regexp.MustCompile(`(?s)\nTraceback \(most recent call last\).*?(?:; line (\d+)\n.*)?$`)

// words drops an error's frames, and Python's words about recursion, which depend on its release.
func words(text string) string {
	if m := frames.FindStringSubmatchIndex(text); m != nil {
		line := ""
		if m[2] >= 0 {
			line = "; line " + text[m[2]:m[3]]
		}
		text = text[:m[0]] + line
	}
	return strings.Replace(text, "recursion depth exceeded while calling a Python object",
		"recursion depth exceeded", 1)
}

// keptRender is a file's list of Salt's answers, or nil if there is none.
func keptRender(t *testing.T, path string) (out []rendered) {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// saltsRender returns what a release of Salt says to the corpus. Kept are all answers of 3008.3, in
// package render, and those of other releases that differ from these.
func saltsRender(t *testing.T, release string, all []rendered) []rendered {
	t.Helper()
	base := keptRender(t, filepath.Join(renderDir, "corpus.json"))
	if len(base) != len(all) {
		t.Fatalf("%d answers to %d templates", len(base), len(all))
	}
	path := filepath.Join("testdata", "render-"+release+".json")
	if *update || answers.Long() {
		now := askRender(t, release, all)
		differ := []rendered{}
		for i := range now {
			if now[i] = (rendered{Name: now[i].Name, Text: now[i].Text, Value: now[i].Value,
				Error: now[i].Error}); !reflect.DeepEqual(now[i], base[i]) {
				differ = append(differ, now[i])
			}
		}
		if *update && len(differ) > 0 {
			b, err := json.MarshalIndent(differ, "", " ")
			if err == nil {
				err = os.WriteFile(path, append(b, '\n'), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		} else if kept := keptRender(t, path); len(differ) != len(kept) {
			t.Errorf("Salt %s now differs from 3008.3 in %d templates, %s has %d", release,
				len(differ), path, len(kept))
		}
		return now
	}
	for _, own := range keptRender(t, path) {
		for i := range base {
			if base[i].Name == own.Name {
				base[i] = own
			}
		}
	}
	return base
}

// TestRenderCorpusForced has the host run every stage of the templates of package render, also
// those of native renderers.
func TestRenderCorpusForced(t *testing.T) {
	t.Parallel()
	all := renderCorpus(t)
	object := func(name string) value.Map {
		b, err := os.ReadFile(filepath.Join(renderDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return salttrees.YAML(t, string(b))
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			want := saltsRender(t, release, all)
			exe, roots := python(t, release), filepath.Join(t.TempDir(), "roots")
			if err := os.CopyFS(roots, os.DirFS(filepath.Join(renderDir, "roots"))); err != nil {
				t.Fatal(err)
			}
			host := pythonhost.New(pythonhost.Options{
				Python: func() (string, error) { return exe, nil },
				Opts: value.Map{{Key: "id", Value: "web1"}, {Key: "cachedir", Value: t.TempDir()},
					{Key: "extension_modules", Value: ""},
					{Key: "pillar_roots", Value: value.Map{{Key: "base", Value: []any{roots}}}},
					{Key: "file_roots", Value: value.Map{{Key: "base", Value: []any{roots}}}}},
			}, nil, nil)
			defer host.Close()
			var session *pythonhost.Session
			var at map[string]any
			for i, c := range all {
				if session == nil || !reflect.DeepEqual(at, c.Opts) {
					if session != nil {
						session.Close()
					}
					var opts value.Map
					for k, v := range c.Opts {
						if m, ok := v.(map[string]any); ok {
							v = plainMap(m)
						}
						opts = opts.Set(k, v)
					}
					at, session = c.Opts, host.Session(pythonhost.Minion{ID: "web1",
						Grains: object("grains.json"), Pillar: object("pillar.json"),
						Saltenv: "base", Opts: opts})
				}
				t.Run(c.Name, func(t *testing.T) {
					v, err := forceStages(t, session, roots, c)
					sameRender(t, v, err, want[i], roots)
				})
			}
			session.Close()
		})
	}
}

// forceStages has the host run a template's renderers, one after the other.
func forceStages(t *testing.T, session *pythonhost.Session, roots string, c rendered) (any, error) {
	t.Helper()
	path := filepath.Join(roots, strings.ReplaceAll(c.SLS, ".", "/")+".sls")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(c.In), 0o644)); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	if strings.TrimSpace(c.In) == "" {
		return value.Map{}, nil // Salt renders nothing of an empty file
	}
	return hostedtest.Pipe(c.In, "jinja|yaml", func(name, args string, v any) (any, error) {
		return session.Call(t.Context(), pythonhost.Call{Kind: pythonhost.Renderer, Fun: name,
			Args: []any{v}, Kwargs: value.Map{{Key: "argline", Value: args},
				{Key: "saltenv", Value: "base"}, {Key: "sls", Value: c.SLS},
				{Key: "path", Value: path},
				{Key: "keywords", Value: value.Map{{Key: "_pillar_rend", Value: true}}}}})
	})
}

// sameRender compares what the host rendered with Salt's answer.
func sameRender(t *testing.T, v any, err error, want rendered, roots string) {
	t.Helper()
	if want.Error != "" || err != nil {
		var e *pythonhost.Error
		if !errors.As(err, &e) || words(strings.ReplaceAll(e.Text, roots, "/roots")) != want.Error {
			t.Errorf("got %#v, %v\nSalt says %+v", v, err, want)
		}
		return
	}
	if want.Value == "" {
		if v != want.Text {
			t.Errorf("got %#v\nSalt says %q", v, want.Text)
		}
		return
	}
	raw, err := base64.StdEncoding.DecodeString(want.Value)
	if err != nil {
		t.Fatal(err)
	}
	salts, err := value.Unpack(raw)
	if err != nil {
		t.Fatal(err)
	}
	if packed, err := value.Pack(v); err != nil {
		t.Error(err)
	} else if got, _ := value.Unpack(packed); !reflect.DeepEqual(got, salts) {
		t.Errorf("got  %#v\nSalt %#v", got, salts)
	}
}

// plainMap is a map of JSON as a map of Salt's.
func plainMap(m map[string]any) (out value.Map) {
	for k, v := range m {
		out = out.Set(k, v)
	}
	return out
}
