package fnmatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestGlob has answers of Python's glob.glob, sorted; MatchPath says the same of each path.
func TestGlob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a/x", "a/.x", ".b/x", ".b/.x", "_c/x", "^d/x", "[e/x", `\f/x`} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	if err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		all = append(all, p)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	for pattern, want := range map[string][]string{
		"[!_]/x":      {"a/x"},
		"[!_]*/x":     {"[e/x", `\f/x`, "^d/x", "a/x"},
		"[^a]?/*":     {"^d/x"},
		`\f/*`:        {`\f/x`},
		`\*/x`:        {`\f/x`},
		"[e/?":        {"[e/x"},
		"*/.x":        {"a/.x"},
		".*/[.x]x":    nil,
		".?/.*":       {".b/.x"},
		"[.]b/x":      nil,
		"a/x":         {"a/x"},
		"a/no":        nil,
		"*/no":        nil,
		"a/x/*":       nil,
		"[a-z]/[!.]*": {"a/x"},
	} {
		pattern = filepath.Join(dir, pattern)
		for i := range want {
			want[i] = filepath.Join(dir, want[i])
		}
		if got := Glob(pattern); !slices.Equal(got, want) {
			t.Errorf("%s finds %q, Python %q", pattern, got, want)
		}
		for _, p := range all {
			if got := MatchPath(pattern, p); got != slices.Contains(want, p) {
				t.Errorf("%s matches %s: %v", pattern, p, got)
			}
		}
	}
}
