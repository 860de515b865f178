package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFragments reads the project's own: all are well-formed, and CHANGELOG.md is made of them.
func TestFragments(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "docs", "changes")
	if _, err := fragments(filepath.Join(dir, next)); err != nil {
		t.Error(err)
	}
	want, err := changelog(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("CHANGELOG.md is not made of docs/changes/: run make changelog")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"fixed: A thing works.\n":                          "",
		"added: Two lines\nof one thing.":                  "",
		"repaired: A thing works.":                         "begins with none of breaking, security",
		"A thing works.":                                   "begins with none of",
		"fixed: a thing":                                   "full stop",
		"fixed: ":                                          "full stop",
		"fixed: One.\n\nTwo.":                              "one file per change",
		"fixed: " + strings.Repeat("long ", 20) + ".":      "columns",
		"fixed: " + strings.Repeat("long\n", 250) + "end.": "at most 1000",
	} {
		_, err := parse(text)
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
}

// TestRelease moves fragments and writes the page, the newest version first.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	changes, page := filepath.Join(dir, "changes"), filepath.Join(dir, "CHANGELOG.md")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(changes, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("0.9.0/a.md", "added: The first.")
	write("next/b.md", "fixed: A fault\nis gone.")
	write("next/a.md", "security: A door is shut.")
	if err := run(changes, page, []string{"0.10.0"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(string(b), "\n## ")
	want := "0.10.0\n\n### Security\n\n- A door is shut.\n\n### Fixed\n\n- A fault\n  is gone.\n\n" +
		"## 0.9.0\n\n### Added\n\n- The first.\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for version, want := range map[string]string{"0.9.0": "exists", "0.11.0": "nothing to release",
		"next": "not a version"} {
		if err := run(changes, page, []string{version}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("release %s: %v, want %q", version, err, want)
		}
	}
}
