package render

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"clustermaster/test/answers"
	"clustermaster/value"
)

var update = flag.Bool("update", false, "ask the real Salt for testdata/corpus.json anew")

// corpusCase is one template of testdata; the reference script reads the same.
type corpusCase struct {
	Name string         `json:"name"`
	SLS  string         `json:"sls"`
	Text string         `json:"text"`
	Opts map[string]any `json:"opts"`
}

// corpusResult is Salt's result for a case: a packed value or an error.
type corpusResult struct {
	Name  string `json:"name"`
	Text  string `json:"text,omitempty"`
	Value string `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

func corpus(t testing.TB) []corpusCase {
	t.Helper()
	var out []corpusCase
	lines, err := os.ReadFile("testdata/expressions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		line = strings.TrimSuffix(line, "\n")
		out = append(out, corpusCase{Name: line, SLS: "t", Text: "#!jinja\nx: {{ " + line + " }}\n",
			Opts: map[string]any{}})
	}
	text, err := os.ReadFile("testdata/templates.txt")
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq("\n"+string(text), "\n=== ") {
		head, body, ok := strings.Cut(block, "\n")
		if !ok {
			continue
		}
		c := corpusCase{Name: head, SLS: "t", Text: body + "\n", Opts: map[string]any{}}
		if name, more, ok := strings.Cut(head, " | "); ok {
			c.Name = name
			if sls, ok := strings.CutPrefix(more, "sls="); ok {
				c.SLS = sls
			} else if err := json.Unmarshal([]byte(strings.TrimPrefix(more,
				"opts=")), &c.Opts); err != nil {
				t.Fatal(head, err)
			}
		}
		if c.Name == "no newline at the end" {
			c.Text = strings.TrimSuffix(c.Text, "\n")
		}
		out = append(out, c)
	}
	return out
}

// TestCorpus renders every template of testdata as Salt 3008 does: value and
// error text are the same.
func TestCorpus(t *testing.T) {
	t.Parallel()
	cases := corpus(t)
	if len(cases) < 500 {
		t.Fatalf("only %d cases", len(cases))
	}
	compareAll(t, newRenderer(t, Options{}), cases)
}

// TestOtherPython renders the corpus with the interpreter of render_python. That one has Salt,
// which py files can then import.
func TestOtherPython(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{Python: saltPython(t)})
	compareAll(t, r, corpus(t))
	src := source("t",
		"#!py\nimport salt.utils.data\ndef run():\n    return {'a': salt.utils.data.is_true('yes')}\n")
	v, err := r.Render(t.Context(), src, "jinja|yaml", Context{}, tree{})
	if err != nil || !reflect.DeepEqual(v, object("a", false)) {
		t.Fatalf("py with Salt: %v, %v", v, err)
	}
}

// saltPython is the interpreter of the installed Salt.
func saltPython(t *testing.T) string {
	t.Helper()
	python := filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"), "salt-3008.3", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	return python
}

func compareAll(t *testing.T, r *Renderer, cases []corpusCase) {
	t.Helper()
	want := savedResults(t)
	h := corpusHost(t)
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if i >= len(want) || want[i].Name != c.Name {
				t.Fatal("testdata/corpus.json is of another corpus: run the test with -update and CLUSTERMASTER_SALT_VENVS")
			}
			compare(t, c, want[i], r, h)
		})
	}
}

// TestCorpusIsSalts asks the real Salt whether testdata/corpus.json is still true.
func TestCorpusIsSalts(t *testing.T) {
	t.Parallel()
	answers.OnlyLong(t, *update)
	python := saltPython(t)
	in, err := json.Marshal(corpus(t))
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "testdata", "roots") // the script writes there
	if err := os.CopyFS(filepath.Dir(roots), os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/reference.py", roots)
	cmd.Stdin = bytes.NewReader(in)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reference.py: %v\n%s", err, complaint.String())
	}
	var got []corpusResult
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].Error = comparable(got[i].Error)
	}
	if *update {
		b, _ := json.MarshalIndent(got, "", " ")
		if err := os.WriteFile("testdata/corpus.json", append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, w := range savedResults(t) {
		if i >= len(got) || got[i] != w {
			t.Errorf("%s: Salt says %+v, testdata/corpus.json %+v", w.Name, got[i], w)
		}
	}
}

func savedResults(t testing.TB) []corpusResult {
	t.Helper()
	b, err := os.ReadFile("testdata/corpus.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []corpusResult
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func compare(t *testing.T, c corpusCase, want corpusResult, r *Renderer, h Host) {
	t.Helper()
	src := Source{Path: "/roots/" + strings.ReplaceAll(c.SLS, ".", "/") + ".sls", SLS: c.SLS,
		SaltEnv: "base", Data: []byte(c.Text)}
	got, err := r.Render(t.Context(), src, "jinja|yaml", corpusContext(t, c), h)
	if want.Error != "" {
		if err == nil {
			t.Fatalf("got %#v, Salt says %q", got, want.Error)
		}
		if text := comparable(err.Error()); text != want.Error {
			t.Fatalf("error\n%s\nSalt says\n%s", text, want.Error)
		}
		return
	}
	if want.Value == "" {
		if err != nil || got != want.Text {
			t.Fatalf("got %q, %v\nSalt %q", got, err, want.Text)
		}
		return
	}
	raw, decodeErr := base64.StdEncoding.DecodeString(want.Value)
	if decodeErr != nil {
		t.Fatal(decodeErr)
	}
	val, unpackErr := value.Unpack(raw)
	if unpackErr != nil {
		t.Fatal(unpackErr)
	}
	if err != nil {
		t.Fatalf("error %v, Salt gives %#v", err, val)
	}
	packed, packErr := value.Pack(got)
	if packErr != nil {
		t.Fatal(packErr)
	}
	if got, _ = value.Unpack(packed); !reflect.DeepEqual(got, val) {
		t.Fatalf("got  %#v\nSalt %#v", got, val)
	}
}

var traceback = regexp.MustCompile(`(?s)\nTraceback \(most recent call last\).*?(?:; line (\d+)\n.*)?$`)

// comparable drops what differs between releases of Python: the interpreter's frames and
// its words about recursion.
func comparable(text string) string {
	if m := traceback.FindStringSubmatchIndex(text); m != nil {
		line := ""
		if m[2] >= 0 {
			line = "; line " + text[m[2]:m[3]]
		}
		text = text[:m[0]] + line
	}
	return strings.Replace(text, "recursion depth exceeded while calling a Python object",
		"recursion depth exceeded", 1)
}

func readObject(t testing.TB, name string) value.Map {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	v, err := ordered(dec)
	if err != nil {
		t.Fatal(name, err)
	}
	return v.(value.Map)
}

// ordered reads JSON with the order of its objects.
func ordered(dec *json.Decoder) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case json.Number:
		return tok.Int64()
	case json.Delim:
		m, list := value.Map{}, []any{}
		for dec.More() {
			v, err := ordered(dec)
			if err != nil {
				return nil, err
			}
			if tok == '{' {
				inner, err := ordered(dec)
				if err != nil {
					return nil, err
				}
				m = append(m, value.Pair{Key: v, Value: inner})
			} else {
				list = append(list, v)
			}
		}
		if _, err := dec.Token(); err != nil {
			return nil, err
		}
		if tok == '{' {
			return m, nil
		}
		return list, nil
	default:
		return tok, nil
	}
}

func corpusContext(t testing.TB, c corpusCase) Context {
	opts := object("id", "web1", "file_client", "local")
	for k, v := range c.Opts {
		if m, ok := v.(map[string]any); ok {
			inner := value.Map{}
			for k, v := range m {
				inner = inner.Set(k, v)
			}
			v = inner
		}
		opts = opts.Set(k, v)
	}
	return Context{ID: "web1", Grains: readObject(t, "testdata/grains.json"),
		Pillar: readObject(t, "testdata/pillar.json"), Opts: opts}
}

// rootsHost serves testdata/roots and the functions that the corpus calls.
type rootsHost struct {
	grains, pillar value.Map
}

func corpusHost(t testing.TB) Host {
	return rootsHost{readObject(t, "testdata/grains.json"), readObject(t, "testdata/pillar.json")}
}

func (rootsHost) File(_ context.Context, _, path string) ([]byte, bool, error) {
	b, err := os.ReadFile(filepath.Join("testdata/roots", path))
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	return b, err == nil, err
}

func (rootsHost) FileName(_, path string) string { return "/roots/" + path }

var corpusFunctions = []string{"grains.get", "grains.filter_by", "pillar.get", "test.echo",
	"test.ping", "cmd.run"}

func (rootsHost) HasFunction(_ context.Context, name string) bool {
	for _, f := range corpusFunctions {
		if f == name || strings.HasSuffix(name, ".") && strings.HasPrefix(f, name) {
			return true
		}
	}
	return false
}

func (h rootsHost) Call(_ context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	arg := func(i int) any {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch fun {
	case "grains.get":
		return lookup(h.grains, arg(0).(string), arg(1)), nil
	case "pillar.get":
		return lookup(h.pillar, arg(0).(string), arg(1)), nil
	case "grains.filter_by":
		grain := kwargs.String("grain")
		if grain == "" {
			grain = "os_family"
		}
		v, _ := arg(0).(value.Map).Get(h.grains.String(grain))
		return v, nil
	case "test.echo":
		return arg(0), nil
	case "cmd.run":
		return nil, fmt.Errorf("Specified cwd '%s' either not absolute or does not exist",
			kwargs.String("cwd"))
	case "test.ping":
		return true, nil
	}
	return nil, fmt.Errorf("%s: %w", fun, ErrUnknownFunction)
}

// lookup follows a path with colons.
func lookup(m value.Map, path string, other any) any {
	var at any = m
	for key := range strings.SplitSeq(path, ":") {
		m, _ := at.(value.Map)
		v, ok := m.Get(key)
		if !ok {
			return other
		}
		at = v
	}
	return at
}
