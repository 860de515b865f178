package state_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "ask Salt for the returns of testdata/trees again")

// A tree is a file of testdata/trees: options of the master (config), what is asked (request), files, and what Salt 3008.3's own runner
// returns and fires (want). Where ours is another, it stands there as well (ours), with the reason (why).
type tree struct {
	name  string
	parts []part
}

type part struct{ name, text string }

func (t *tree) get(name string) (string, bool) {
	i := slices.IndexFunc(t.parts, func(p part) bool { return p.name == name })
	if i < 0 {
		return "", false
	}
	return t.parts[i].text, true
}

func (t *tree) set(name, text string) {
	if i := slices.IndexFunc(t.parts, func(p part) bool { return p.name == name }); i >= 0 {
		t.parts[i].text = text
		return
	}
	t.parts = append(t.parts, part{name, text})
}

func trees(t *testing.T) []*tree {
	t.Helper()
	paths, err := filepath.Glob("testdata/trees/*.txtar")
	if err != nil || len(paths) < minTrees {
		t.Fatalf("%d trees: %v", len(paths), err)
	}
	var out []*tree
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tr := &tree{name: strings.TrimSuffix(filepath.Base(path), ".txtar")}
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- "); ok && strings.HasSuffix(name, " --") {
				tr.parts = append(tr.parts, part{name: strings.TrimSuffix(name, " --")})
			} else if n := len(tr.parts); n > 0 {
				tr.parts[n-1].text += line
			}
		}
		out = append(out, tr)
	}
	return out
}

// minTrees keeps the corpus from getting lost.
const minTrees = 180

// TestTrees compares our orchestrations with those of Salt.
func TestTrees(t *testing.T) {
	t.Parallel()
	all := trees(t)
	if *update {
		askSalt(t, all)
	}
	for _, tr := range all {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			got := normal(show(t, orchestrate(t, tr, root), root))
			want, ok := tr.get("want")
			if !ok {
				t.Fatal("no answer of Salt: go test -run TestTrees -update")
			}
			if own, ok := tr.get("ours"); ok {
				if why, _ := tr.get("why"); strings.TrimSpace(why) == "" {
					t.Error("a difference without its reason")
				}
				if normal(own) == normal(want) {
					t.Error("ours is not different any more")
				}
				want = own
			}
			if want = normal(want); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestTreesAreSalts asks Salt again whether the kept answers are still its own.
func TestTreesAreSalts(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	said := saltSays(t, "testdata/trees")
	for _, tr := range trees(t) {
		want, _ := tr.get("want")
		if got := normal(said[tr.name]); got != normal(want) {
			t.Errorf("%s: Salt now says\n%s\nkept\n%s", tr.name, got, want)
		}
	}
}

func saltSays(t *testing.T, dir string) map[string]string {
	t.Helper()
	python := filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"), "salt-3008.3", "bin", "python")
	cmd := exec.Command(python, "testdata/orchestrate.py", dir)
	cmd.Env = append(os.Environ(), "PYTHONHASHSEED=0") // Salt walks over sets
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
		texts[name] = indent(t, raw)
	}
	return texts
}

func askSalt(t *testing.T, all []*tree) {
	t.Helper()
	said := saltSays(t, "testdata/trees")
	for _, tr := range all {
		if want, ok := tr.get("want"); ok && normal(want) == normal(said[tr.name]) {
			continue
		}
		tr.set("want", said[tr.name])
		var b strings.Builder
		for _, p := range tr.parts {
			fmt.Fprintf(&b, "-- %s --\n%s", p.name, p.text)
		}
		if err := os.WriteFile("testdata/trees/"+tr.name+".txtar", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func indent(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return b.String() + "\n"
}

var failedOf = regexp.MustCompile(`One or more requisite failed: [^"]*`)

// normal sorts what Salt takes from a set.
func normal(text string) string {
	return failedOf.ReplaceAllStringFunc(text, func(s string) string {
		const head = "One or more requisite failed: "
		list := strings.Split(strings.TrimPrefix(s, head), ", ")
		sort.Strings(list)
		return head + strings.Join(list, ", ")
	})
}
