package conformance

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"clustermaster/test/e2e"
)

// TestMasterDataPage: every test that MASTER-DATA.md names exists.
func TestMasterDataPage(t *testing.T) {
	t.Parallel()
	named := 0
	for _, m := range regexp.MustCompile("`([a-z0-9]+)` (Test\\w+)").FindAllStringSubmatch(string(readFile(t, "MASTER-DATA.md")), -1) {
		named++
		files := testsOf(t, m[1])
		there := false
		for _, f := range files {
			there = there || bytes.Contains(readFile(t, f), []byte("func "+m[2]+"("))
		}
		if !there {
			t.Errorf("package %s has no %s", m[1], m[2])
		}
	}
	if named < 60 {
		t.Errorf("%d tests named", named)
	}
	for _, line := range strings.Fields("1 18 26 45") {
		if !strings.Contains(string(readFile(t, "MASTER-DATA.md")), "\n| "+line+" |") {
			t.Errorf("line %s is missing", line)
		}
	}
}

// testsOf lists the test files of a package, given the end of its path.
func testsOf(t *testing.T, name string) []string {
	t.Helper()
	var files []string
	for _, group := range []string{"", "*", "*/*"} {
		found, err := filepath.Glob(filepath.Join(e2e.Root(t), group, name, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
}
