package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// lastLine is the number of lines of the checklist.
const lastLine = 69

var (
	rowForm  = regexp.MustCompile(`^\| (\d+) \| ([^|]*) \| ([^|]+) \|`)
	holeForm = regexp.MustCompile(`^\| [^|]{20,} \| ([^|]*) \|$`)
)

// TestReadme: README.md has a row for every line of the checklist, in order. Every test that it
// names exists, and it names every subtest of TestChannel.
func TestReadme(t *testing.T) {
	text := string(readFile(t, "README.md"))
	subtests := map[string]bool{}
	for _, name := range regexp.MustCompile(`(?:Run\(|line\{|\t\{)"(\w+)"`).FindAllStringSubmatch(string(readFile(t, "channel_test.go")), -1) {
		subtests[name[1]] = false
	}
	if len(subtests) < 50 {
		t.Fatalf("%d subtests found", len(subtests))
	}
	next, holes := 1, 0
	for row := range strings.Lines(text) {
		row = strings.TrimSpace(row)
		m := rowForm.FindStringSubmatch(row)
		var tests string
		switch {
		case m != nil:
			if n, err := strconv.Atoi(m[1]); err != nil || n != next {
				t.Errorf("row %s, want line %d", m[1], next)
			}
			next++
			tests = m[2]
			if (tests == "—") != (m[3] == "missing") {
				t.Errorf("line %s has no test and isn't said to be missing, or the reverse", m[1])
			}
		case holeForm.MatchString(row) && !strings.HasPrefix(row, "| line"):
			tests = holeForm.FindStringSubmatch(row)[1]
			holes++
		}
		if tests == "" || tests == "—" {
			continue
		}
		dir := ""
		for name := range strings.SplitSeq(tests, ", ") {
			if pkg, rest, ok := strings.Cut(name, " "); ok {
				dir, name = strings.Trim(pkg, "`"), rest
			}
			switch _, ok := subtests[name]; {
			case ok:
				subtests[name] = true
			case dir == "" || !testExists(t, dir, name):
				t.Errorf("%q: there is no test %s in %q", row, name, dir)
			}
		}
	}
	if next != lastLine+1 || holes < 20 {
		t.Errorf("%d lines and %d holes", next-1, holes)
	}
	for name, named := range subtests {
		if !named && !strings.Contains(text, name) {
			t.Errorf("%s is not in README.md", name)
		}
	}
}

// testExists looks for a test function among the files of a package, and for a subtest's name as a
// text.
func testExists(t *testing.T, dir, name string) bool {
	t.Helper()
	name, sub, _ := strings.Cut(name, "/")
	for _, file := range testsOf(t, dir) {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == name {
				return sub == "" || strings.Contains(string(source), strconv.Quote(sub))
			}
		}
	}
	return false
}
