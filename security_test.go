package clustermaster_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPageNamesTests: what docs/security.md says that tests try, they do: each is there, in
// the package that is named.
func TestSecurityPageNamesTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/]+) ((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 40 {
		t.Fatalf("%d tests are named", len(named))
	}
	for _, n := range named {
		found := false
		for _, file := range testsOf(t, n[1]) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+n[2]+"(")
		}
		if !found {
			t.Errorf("%s has no %s", n[1], n[2])
		}
	}
}

// testsOf lists the files with tests of a package, which is named by the end of its path.
func testsOf(t *testing.T, name string) []string {
	t.Helper()
	var files []string
	for _, place := range []string{name, filepath.Join("*", name), filepath.Join("*", "*", name)} {
		found, err := filepath.Glob(filepath.Join(place, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
}
