package ringstore

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEachFileBelongsToOnePart compares the table of parts in DESIGN.md with the files.
func TestEachFileBelongsToOnePart(t *testing.T) {
	t.Parallel()
	design, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(design), "## Parts")
	table, _, _ = strings.Cut(table, "\n## ")
	part := make(map[string]string)
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z ]+) \| ([a-z, /]+) \|`).FindAllStringSubmatch(table, -1) {
		for _, name := range strings.Fields(strings.ReplaceAll(row[2], ",", "")) {
			if part[name] != "" {
				t.Errorf("%s is in %q and %q", name, part[name], row[1])
			}
			part[name] = row[1]
		}
	}
	delete(part, "files") // the heading
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, f := range files {
		name := strings.TrimSuffix(f, ".go")
		if strings.HasSuffix(name, "_test") {
			continue
		}
		if part[name] == "" {
			t.Errorf("%s is in no part of DESIGN.md: add it to the one that it belongs to", f)
		}
		delete(part, name)
	}
	for name := range part {
		if st, err := os.Stat(name); err == nil && st.IsDir() && strings.HasSuffix(name, "/") {
			delete(part, name)
		}
	}
	for name, p := range part {
		t.Errorf("%s.go of part %q does not exist", name, p)
	}
}
