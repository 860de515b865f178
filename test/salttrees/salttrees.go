// Package salttrees is the kit of tests that compare what we make of a tree of files with what Salt
// makes of it.
//
// A tree is a file of testdata/trees in the txtar format: options of the master (config), the
// question (request), files, and Salt's answer (want). If our answer is another, the file has it
// too (ours), with the reason (why).
package salttrees

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermaster/test/answers"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// Part is a named text of a tree.
type Part struct{ Name, Text string }

// Tree is one file.
type Tree struct {
	Name  string
	Parts []Part
}

// Get returns the text of a part.
func (t *Tree) Get(name string) (text string, found bool) {
	i := slices.IndexFunc(t.Parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		return "", false
	}
	return t.Parts[i].Text, true
}

// Set changes a part, or adds it.
func (t *Tree) Set(name, text string) {
	if i := slices.IndexFunc(t.Parts, func(p Part) bool { return p.Name == name }); i >= 0 {
		t.Parts[i].Text = text
		return
	}
	t.Parts = append(t.Parts, Part{name, text})
}

// Text is the tree in the form of its file.
func (t *Tree) Text() string {
	var b strings.Builder
	for _, p := range t.Parts {
		fmt.Fprintf(&b, "-- %s --\n%s", p.Name, p.Text)
	}
	return b.String()
}

// Write puts the tree's file into a folder.
func (t *Tree) Write(dir string) error {
	return os.WriteFile(filepath.Join(dir, t.Name+".txtar"), []byte(t.Text()), 0o644)
}

// Place writes the files of the tree, the parts with a slash in their names, below root. In the
// files ROOT stands for root's name.
func (t *Tree) Place(tb testing.TB, root string) {
	tb.Helper()
	for _, p := range t.Parts {
		if !strings.Contains(p.Name, "/") {
			continue
		}
		full := filepath.Join(root, p.Name)
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		if err == nil {
			err = os.WriteFile(full, []byte(strings.ReplaceAll(p.Text, "ROOT", root)), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// YAML reads a part that is a map.
func YAML(tb testing.TB, text string) value.Map {
	tb.Helper()
	v, err := yaml11.Load([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	m, _ := v.(value.Map)
	return m
}

// Grains are the grains with which a script asks Salt: the script's text GRAINS.
func Grains(tb testing.TB, script string) value.Map {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", script))
	if err != nil {
		tb.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), `GRAINS = """`)
	text, _, found := strings.Cut(text, `"""`)
	if !found {
		tb.Fatalf("testdata/%s has no GRAINS", script)
	}
	return YAML(tb, text)
}

// Corpus is the trees of a package.
type Corpus struct {
	// a file below testdata: it asks Salt for the trees of the folder in its argument, and prints
	// JSON of name to answer
	Script  string
	Least   int                      // number of trees, so that none gets lost
	Normal  func(text string) string // removes from an answer what is not compared
	Release string                   // of the Salt that is asked; "" is 3008.3
}

// folder holds the trees.
const folder = "testdata/trees"

// Read returns all trees.
func (c Corpus) Read(t *testing.T) []*Tree {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err != nil || len(paths) < c.Least {
		t.Fatalf("%d trees, want %d: %v", len(paths), c.Least, err)
	}
	out := make([]*Tree, len(paths))
	for i, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = &Tree{Name: strings.TrimSuffix(filepath.Base(path), ".txtar")}
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- "); ok &&
				strings.HasSuffix(name, " --") {
				out[i].Parts = append(out[i].Parts, Part{Name: strings.TrimSuffix(name, " --")})
			} else if n := len(out[i].Parts); n > 0 {
				out[i].Parts[n-1].Text += line
			}
		}
	}
	return out
}

// Ask returns Salt's answers for the trees of a folder.
func (c Corpus) Ask(t *testing.T, dir string) map[string]string {
	t.Helper()
	python := filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"),
		"salt-"+cmp.Or(c.Release, "3008.3"), "bin", "python")
	cmd := exec.Command(python, filepath.Join("testdata", c.Script), dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var said map[string]json.RawMessage
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string, len(said))
	for name, raw := range said {
		texts[name] = Indent(t, raw)
	}
	return texts
}

// Indent formats an answer.
func Indent(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return b.String() + "\n"
}

// Compare makes each tree below its own empty folder, and compares our answer with the kept one.
// With update it first asks Salt for the answers to keep.
func (c Corpus) Compare(t *testing.T, update bool,
	ours func(t *testing.T, tree *Tree, root string) string) {
	t.Helper()
	all := c.Read(t)
	if update {
		c.update(t, all)
	}
	for _, tree := range all {
		t.Run(tree.Name, func(t *testing.T) {
			t.Parallel()
			got := c.Normal(ours(t, tree, t.TempDir()))
			want, ok := tree.Get("want")
			if !ok {
				t.Fatal("no answer of Salt: run with -update")
			}
			if own, ok := tree.Get("ours"); ok {
				if why, _ := tree.Get("why"); strings.TrimSpace(why) == "" {
					t.Error("a difference without its reason")
				}
				if c.Normal(own) == c.Normal(want) {
					t.Error("ours is not different any more")
				}
				want = own
			}
			if want = c.Normal(want); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func (c Corpus) update(t *testing.T, all []*Tree) {
	t.Helper()
	said := c.Ask(t, folder)
	for _, tree := range all {
		if want, ok := tree.Get("want"); ok && c.Normal(want) == c.Normal(said[tree.Name]) {
			continue
		}
		tree.Set("want", said[tree.Name])
		if err := tree.Write(folder); err != nil {
			t.Fatal(err)
		}
	}
}

// StillSalts asks Salt whether the kept answers are its own.
func (c Corpus) StillSalts(t *testing.T) {
	t.Helper()
	answers.OnlyLong(t, false)
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	said := c.Ask(t, folder)
	for _, tree := range c.Read(t) {
		want, _ := tree.Get("want")
		if got := c.Normal(said[tree.Name]); got != c.Normal(want) {
			t.Errorf("%s: Salt now says\n%s\nkept\n%s", tree.Name, got, want)
		}
	}
}
