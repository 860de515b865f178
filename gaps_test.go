package clustermaster_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var namedTest = regexp.MustCompile("`([a-z0-9]+)\\.(Test[A-Za-z]+)(?:/([A-Za-z]+))?`")

// TestGapsAreShownClosed looks up each test that docs/operations.md names as proof.
func TestGapsAreShownClosed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	named := namedTest.FindAllStringSubmatch(string(text), -1)
	if len(named) < 25 {
		t.Errorf("%d tests are named", len(named))
	}
	for _, n := range named {
		var source strings.Builder
		for _, f := range testsOf(t, n[1]) {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(b)
		}
		if !strings.Contains(source.String(), "func "+n[2]+"(") || n[3] != "" &&
			!strings.Contains(source.String(), `{"`+n[3]+`", `) {
			t.Errorf("%s: there is no such test", n[0])
		}
	}
}
