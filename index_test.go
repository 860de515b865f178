package clustermaster_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// link finds links to other pages, without the place on the page.
var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestPagesAreLinked: docs/README.md lists every page of docs, and no page links to a file that
// does not exist.
func TestPagesAreLinked(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	index := "docs/README.md"
	var listed []string
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if m[1] == "..." { // of an example
				continue
			}
			to := filepath.Join(filepath.Dir(page), strings.TrimSpace(m[1]))
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
			if page == index {
				listed = append(listed, to)
			}
		}
	}
	for _, page := range pages {
		if page != index && !slices.Contains(listed, page) {
			t.Errorf("%s does not list %s", index, page)
		}
	}
}
