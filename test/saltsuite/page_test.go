package saltsuite

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// entry is a line of a list: a folder, file or test, and why.
type entry struct{ what, why string }

func list(t *testing.T, name string) []entry {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out []entry
	for line := range strings.Lines(string(b)) {
		what, why, _ := strings.Cut(strings.TrimSpace(line), "  # ")
		if what != "" && !strings.HasPrefix(what, "#") {
			out = append(out, entry{what, why})
		}
	}
	return out
}

// covers reports whether a rule is about a file or a test. A star stands for slashes, too; square
// brackets are a test's parameters and stand for themselves.
func covers(rule, name string) bool {
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(rule))
	return regexp.MustCompile("^" + expression + `(/.*|::.*|\[.*)?$`).MatchString(name)
}

// outcome is a line of results.tsv.
type outcome struct{ test, salts, ours, day string }

func results(t *testing.T) map[string][]outcome {
	t.Helper()
	out := map[string][]outcome{}
	b, err := os.ReadFile("results.tsv")
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"passed", "unsteady", "failed", "skipped", "error", "harness", "absent"}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 || !slices.Contains(known, f[1]) || !slices.Contains(known, f[2]) {
			t.Fatalf("results.tsv: %q is no outcome", line)
		}
		file, _, _ := strings.Cut(f[0], "::")
		out[file] = append(out[file], outcome{f[0], f[1], f[2], f[3]})
	}
	return out
}

// rows are the rows of the tables below a heading of the page, without their heads.
func rows(t *testing.T, page, heading string) []string {
	t.Helper()
	_, section, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		t.Fatalf("the page has no %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var out []string
	for line := range strings.Lines(section) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "|---"):
			out = out[:len(out)-1] // what came before was the head
		case strings.HasPrefix(line, "|"):
			out = append(out, line)
		}
	}
	return out
}

func good(outcome string) bool { return outcome == "passed" || outcome == "unsteady" }

// TestPageAgreesWithLists: docs/salt-suite.md has a row for each file that is run with the figures
// of results.tsv, every exclusion, and every test that passes with Salt's master only, each with
// its reason.
func TestPageAgreesWithLists(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/salt-suite.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	chosen, excluded, reasons := list(t, "selection.txt"), list(t, "exclude.txt"), list(t, "reasons.txt")
	if len(chosen) < 100 || len(excluded) < 50 {
		t.Fatalf("%d files chosen, %d lines of exclusions", len(chosen), len(excluded))
	}
	kept := results(t)

	var figures, lost, errors, unsteady, rest []string
	var sum [4]int
	files := map[string]bool{}
	for _, e := range chosen {
		if files[e.what] {
			t.Errorf("selection.txt names %s twice", e.what)
		}
		files[e.what] = true
		for _, x := range excluded {
			if !strings.Contains(x.what, "::") && covers(x.what, e.what) {
				t.Errorf("%s is run, and excluded by %s", e.what, x.what)
			}
		}
		tests, run := kept[e.what]
		if !run {
			rest = append(rest, fmt.Sprintf("| %s |", e.what))
			continue
		}
		var n [4]int // tests, pass with Salt's, of these with ours, with ours only
		harness, day := 0, ""
		for _, o := range tests {
			_, name, found := strings.Cut(o.test, "::")
			if !found {
				name = "the whole file"
			}
			for i, counts := range []bool{
				true, good(o.salts), good(o.salts) && good(o.ours), !good(o.salts) && good(o.ours),
			} {
				if counts {
					n[i]++
					sum[i]++
				}
			}
			day = max(day, o.day)
			both := fmt.Sprintf("| %s | `%s` | %s | %s |", e.what, name, o.salts, o.ours)
			if o.salts == "unsteady" || o.ours == "unsteady" {
				unsteady = append(unsteady, both)
			}
			if o.salts == "harness" || o.ours == "harness" {
				harness++
				errors = append(errors, both)
			} else if good(o.salts) && !good(o.ours) {
				i := slices.IndexFunc(reasons, func(r entry) bool { return covers(r.what, o.test) })
				if i < 0 {
					t.Errorf("%s passes with Salt's master only, and reasons.txt does not say why", o.test)
					continue
				}
				lost = append(lost, fmt.Sprintf("| %s | `%s` | %s |", e.what, name, reasons[i].why))
			}
		}
		count := fmt.Sprint(n[0])
		if harness > 0 {
			count += fmt.Sprintf(" (%d errors of the harness)", harness)
		}
		figures = append(figures, fmt.Sprintf("| %s | %s | %d | %d | %d | %s |",
			e.what, count, n[1], n[2], n[3], day))
	}
	figures = append(figures, fmt.Sprintf("| sum | %d | %d | %d | %d | |", sum[0], sum[1], sum[2], sum[3]))
	for file := range kept {
		if !files[file] {
			t.Errorf("results.tsv has %s, which selection.txt does not name", file)
		}
	}
	var out []string
	for _, x := range excluded {
		if x.why == "" {
			t.Errorf("exclude.txt: %s has no reason", x.what)
		}
		if file, _, test := strings.Cut(x.what, "::"); test && !files[file] {
			t.Errorf("exclude.txt: %s is of a file that is not run", x.what)
		}
		out = append(out, fmt.Sprintf("| %s | %s |", x.what, x.why))
	}
	for _, r := range reasons {
		file, _, _ := strings.Cut(r.what, "::")
		if r.why == "" || !files[file] {
			t.Errorf("reasons.txt: %s: no such file, or no reason", r.what)
		}
		if tests, run := kept[file]; run && !slices.ContainsFunc(tests, func(o outcome) bool {
			return covers(r.what, o.test) && good(o.salts) && !good(o.ours)
		}) {
			t.Errorf("reasons.txt: %s gives a reason for nothing", r.what)
		}
	}
	for heading, want := range map[string][]string{
		"## Figures":                      figures,
		"## Pass with Salt's master only": lost,
		"## Errors of the harness":        errors,
		"## Unsteady":                     unsteady,
		"## Chosen and not run yet":       rest,
		"## Left out":                     out,
	} {
		if got := rows(t, page, heading); !slices.Equal(got, want) {
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Errorf("%s: from row %d the page and the lists differ; run test/saltsuite/referee --page",
						path.Join("docs/salt-suite.md", heading), i+1)
					break
				}
			}
		}
	}
	if total := fmt.Sprintf("**%d of these pass with ours**", sum[2]); !strings.Contains(page, total) {
		t.Errorf("the page does not say %q", total)
	}
}

// TestReferee runs the tests of the harness's own judgement: what died counts for nobody.
func TestReferee(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("python3", "test_referee.py").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
