package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFaultsFit: what a fault changes stands in its file once. Whether a test finds it is the
// matter of make mutations.
func TestFaultsFit(t *testing.T) {
	t.Parallel()
	all, err := parse(table)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Errorf("%d faults", len(all))
	}
	for _, m := range all {
		b, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := strings.Count(string(b), m.from); n != 1 {
			t.Errorf("%s: %s has it %d times", m.name, m.file, n)
		}
	}
}

// TestPage: a run of some faults keeps the rows of the others, but not of faults that are gone.
func TestPage(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	const was = "above\n" + begins + "\n\n### A\n\n| fault | in | found by | on |\n|---|---|---|---|\n" +
		"| one | a.go | TestOne | 2026-01-02 |\n| two | a.go | TestTwo | 2026-01-02 |\n" +
		"| gone | a.go | TestGone | 2026-01-02 |\n\n" + ends + "\nbelow\n"
	if err := os.WriteFile(page, []byte(was), 0o600); err != nil {
		t.Fatal(err)
	}
	one, two := mutation{group: "A", name: "one", file: "a.go"}, mutation{group: "A", name: "two", file: "a.go"}
	three := mutation{group: "B", name: "three", file: "b.go"}
	four := mutation{group: "B", name: "four", file: "b.go"}
	err := write(page, []mutation{one, two, three, four},
		[]result{{mutation: two, found: "TestTwo/other"}, {mutation: four}},
		time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| fault | in | found by | on |\n|---|---|---|---|\n"
	const want = "above\n" + begins + "\n\n### A\n\n" + head +
		"| one | a.go | TestOne | 2026-01-02 |\n| two | a.go | TestTwo/other | 2026-02-03 |\n" +
		"\n### B\n\n" + head + "| three | b.go | not tried yet | |\n| four | b.go | no test | 2026-02-03 |\n\n" +
		ends + "\nbelow\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestJudge: a test that hangs says nothing before go test's panic. It finds no fault, unless
// another test does.
func TestJudge(t *testing.T) {
	t.Parallel()
	const hangs = "panic: test timed out after 10m0s\n\trunning tests:\n\t\tTestA (10m0s)\n\ngoroutine 17 [running]:\n"
	const fails = "--- FAIL: TestB (0.00s)\n    b_test.go:3: 1, not 2\n"
	for _, tt := range []struct{ out, found, err string }{
		{fails + "FAIL\n", "TestB", ""},
		{hangs, "", "the test hangs"},
		{"a line of a master\n" + hangs, "", "the test hangs"},
		{fails + hangs, "TestB", ""},
		{"panic: close of nil channel\n\ngoroutine 7 [running]:\n", "panic: close of nil channel", ""},
		{"FAIL\tclustermaster/wire [build failed]\n", "", "no test did"},
	} {
		found, err := judge([]byte(tt.out))
		if said := fmt.Sprint(err); found != tt.found || (err == nil) != (tt.err == "") || !strings.Contains(said, tt.err) {
			t.Errorf("%q: %q, %v", tt.out, found, err)
		}
	}
}
