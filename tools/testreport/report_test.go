package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// probe writes a module of these files and returns its folder.
func probe(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module probe\n\ngo 1.24\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// module is a probe with a package of each fate.
func module(t *testing.T) string {
	t.Helper()
	return probe(t, map[string]string{
		"good/good_test.go": `package good
import "testing"
func TestGood(t *testing.T) { t.Log("noise of a good test") }
func TestMany(t *testing.T) { for _, n := range []string{"a", "b"} { t.Run(n, func(*testing.T) {}) } }
func TestLacks(t *testing.T) { t.Skip("needs a thing; run make test") }
func TestStandIn(t *testing.T) { t.Log("left out: name spaces (a proxy stands in)") }
`,
		"bad/bad_test.go": `package bad
import "testing"
func TestFine(t *testing.T) {}
func TestBad(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("the sum is wrong") }); t.Run("other", func(*testing.T) {}) }
`,
		"panics/panics_test.go": "package panics\nimport \"testing\"\nfunc TestPanics(t *testing.T) { panic(\"out of luck\") }\n",
		"exits/exits_test.go":   "package exits\nimport (\"os\"; \"testing\")\nfunc TestExits(t *testing.T) { os.Exit(3) }\n",
		"broken/broken_test.go": "package broken\nfunc f() { nothing() }\n",
		"main/main_test.go":     "package main\nimport (\"os\"; \"testing\")\nfunc TestMain(*testing.M) { os.Exit(1) }\nfunc TestNone(*testing.T) {}\n",
	})
}

const goTest = "go test -json -vet=off "

func TestEveryFateIsReported(t *testing.T) {
	dir := module(t)
	var out bytes.Buffer
	code := run(&out, "", false, false, second{}, "", []string{
		"first=cd " + dir + " && CGO_ENABLED=0 " + goTest + "./...",
		"second=echo 'left out: a checker (not installed)'; exit 4",
		// what failed before hides nothing
		"third=cd " + dir + " && CGO_ENABLED=0 " + goTest + "./good",
	})
	text := out.String()
	for _, want := range []string{
		"ok  \tprobe/good\t", "4 passed, 1 skipped\n", "bad_test.go:4: the sum is wrong\n",
		"FAIL\tprobe/bad\t2 passed, 1 failed\n",
		"undefined: nothing", "panic: out of luck",
		"  needs a thing; run make test\n      probe/good TestLacks\n",
		"  name spaces (a proxy stands in)\n      probe/good TestStandIn\n",
		"  a checker (not installed)\n      second\n",
		"  first: probe/bad TestBad/sub\n", "  first: probe/broken does not build\n",
		"  first: probe/panics TestPanics\n",
		"  first: probe/exits TestExits (did not end)\n",
		"  first: probe/main failed outside of its tests\n",
		"  second: exit status 4, and no test failed\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not in the report: %q", want)
		}
	}
	if strings.Contains(text, "noise of a good test") || strings.Contains(text, "=== RUN") {
		t.Error("output of what passed")
	}
	if !strings.HasSuffix(text, "\n10 passed, 6 failed, 2 skipped\n") || code != 1 {
		t.Errorf("exit code %d", code)
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestSkipsInCI(t *testing.T) {
	allow := filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(allow, []byte("# what CI may lack\na checker # it has another\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, command, want string
		strict              bool
		code                int
	}{
		{"allowed", "echo left out: a checker",
			"  a checker\n      part\n\n0 passed, 0 failed, 0 skipped\n", true, 0},
		{"not allowed", "echo left out: haproxy",
			"  CI: skipped or left out: haproxy\n\n0 passed, 1 failed, 0 skipped\n", true, 1},
		{"elsewhere", "echo left out: haproxy",
			"  haproxy\n      part\n\n0 passed, 0 failed, 0 skipped\n", false, 0},
	} {
		var out bytes.Buffer
		if code := run(&out, allow, tt.strict, false, second{}, "", []string{"part=" + tt.command}); code != tt.code ||
			!strings.HasSuffix(out.String(), tt.want) {
			t.Errorf("%s: exit code %d\n%s", tt.name, code, &out)
		}
	}
	var out bytes.Buffer
	if code := run(&out, allow+"x", true, false, second{}, "", nil); code != 2 {
		t.Errorf("without the file: exit code %d\n%s", code, &out)
	}
}

// What fails once passes alone and is named; what fails twice, races or is one of many fails.
func TestUnsteady(t *testing.T) {
	write := func(dir, name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	const once = `func TestOnce(t *testing.T) { t.Run("sub", func(t *testing.T) {
	if f, err := os.OpenFile("was.here", os.O_CREATE|os.O_EXCL, 0o600); err == nil { f.Close(); t.Error("the first time") } }) }
`
	const always = "func TestAlways(t *testing.T) { t.Error(\"as ever\") }\n"
	for _, tt := range []struct {
		name, tests string
		most, code  int
		want        []string
		end         string
	}{
		{"once", once, 1, 0, []string{"once_test.go", "the first time",
			"probe TestOnce failed; it runs again, alone\n", "ok  \tprobe\t",
			"passed alone):\n  unit: probe TestOnce/sub\n"},
			"\n2 passed, 0 failed, 0 skipped, 1 unsteady\n"},
		{"always", always, 1, 1, []string{"failed:\n  alone: probe TestAlways\n  unit: probe TestAlways\n"},
			"\n1 passed, 2 failed, 0 skipped\n"},
		{"one of them", once + always, 1, 1, nil, "\n1 passed, 2 failed, 0 skipped\n"},
		{"raced", `func TestRace(t *testing.T) { fmt.Println("WARNING: DATA RACE"); TestOnce(t) }
` + once, 2, 1, nil, "failed, 0 skipped\n"},
		{"crashed", `func TestCrash(t *testing.T) { if _, err := os.Stat("was.here"); err != nil { defer panic("once"); TestOnce(t) } }
func TestAfter(t *testing.T) { t.Error("hidden by the crash") }
` + once, 2, 1, []string{"panic: once"}, "failed, 0 skipped\n"},
		{"no second attempt", once, 0, 1, nil, "\n1 passed, 1 failed, 0 skipped\n"},
	} {
		dir := t.TempDir()
		write(dir, "go.mod", "module probe\n\ngo 1.24\n", 0o644)
		write(dir, "once_test.go", "package probe\nimport (\"fmt\"; \"os\"; \"testing\")\nvar _ = os.Args\n"+
			"func TestGood(*testing.T) { fmt.Print() }\n"+tt.tests, 0o644)
		write(dir, "again.sh", "#!/bin/sh\ncd "+dir+" && CGO_ENABLED=0 "+goTest+"-run \"$2\" \"$1\"\n", 0o755)
		var out bytes.Buffer
		code := run(&out, "", false, false, second{tt.most, filepath.Join(dir, "again.sh")}, "",
			[]string{"unit=cd " + dir + " && CGO_ENABLED=0 " + goTest + "./..."})
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: not in the report: %q\n%s", tt.name, want, &out)
			}
		}
		if !strings.HasSuffix(out.String(), tt.end) || code != tt.code {
			t.Errorf("%s: exit code %d\n%s", tt.name, code, &out)
		}
	}
}

// TestNoTestRan: a part that tests nothing fails, unless only some tests are wanted and another
// part has them.
func TestNoTestRan(t *testing.T) {
	dir := probe(t, map[string]string{
		"probe_test.go": "package probe\nimport \"testing\"\nfunc TestGood(*testing.T) {}\n",
		"none/none.go":  "package none\n",
	})
	all := "all=cd " + dir + " && CGO_ENABLED=0 " + goTest + "."
	other, none := all+" -run Other", "none=cd "+dir+" && "+goTest+"./none"
	for _, tt := range []struct {
		name     string
		filtered bool
		parts    []string
		code     int
		want     string
	}{
		{"another name", false, []string{other}, 1, "  all: no test ran\n\n0 passed, 1 failed"},
		{"no file", false, []string{all, none}, 1, "  none: no test ran\n\n1 passed, 1 failed"},
		{"filtered", true, []string{"first=true", all, other, none}, 0, "\n1 passed, 0 failed"},
		{"filtered out", true, []string{other, none}, 1, "  all parts: no test ran\n\n0 passed, 1 failed"},
	} {
		var out bytes.Buffer
		code := run(&out, "", false, tt.filtered, second{}, "", tt.parts)
		if code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: exit code %d\n%s", tt.name, code, &out)
		}
	}
}

// TestCrashAfterAPass: what a crash says is reported although Go takes it for the output of the
// test that spoke last, which had passed.
func TestCrashAfterAPass(t *testing.T) {
	dir := probe(t, map[string]string{"probe_test.go": `package probe
import ("fmt"; "testing")
func TestWaits(t *testing.T) { t.Parallel(); select {} }
func TestSpeaks(t *testing.T) { t.Parallel(); fmt.Println("noise"); t.Log("noise of a good test") }
`})
	var out bytes.Buffer
	code := run(&out, "", false, false, second{}, "",
		[]string{"unit=cd " + dir + " && CGO_ENABLED=0 " + goTest + "-timeout 3s ./..."})
	text := out.String()
	if code != 1 || !strings.Contains(text, "panic: test timed out after 3s") ||
		!strings.Contains(text, "probe.TestWaits(") ||
		!strings.HasSuffix(text, "\n  unit: probe TestWaits (did not end)\n\n1 passed, 1 failed, 0 skipped\n") ||
		strings.Contains(text, "noise of a good test") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// TestDiary: each part that ran tests has a row with its own figures, before the end of the table.
func TestDiary(t *testing.T) {
	dir := probe(t, map[string]string{"page.md": "| a |\n|---|\n" + endOfDiary + "more\n",
		"probe_test.go": "package probe\nimport \"testing\"\nfunc TestGood(*testing.T) {}\n" +
			"func TestBad(t *testing.T) { t.Fail() }\nfunc TestNot(t *testing.T) { t.Skip(\"why\") }\n"})
	page := filepath.Join(dir, "page.md")
	test := "cd " + dir + " && CGO_ENABLED=0 " + goTest
	var out bytes.Buffer
	run(&out, "", false, false, second{}, page, []string{"needs=true", "all=" + test + "./...",
		"covered=" + test + "-run Good ./...; echo coverage of the program: 61.0 %; echo failed: two races",
		"good=" + test + "-run Good ./..."})
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^\| a \|\n\|---\|\n` +
		`\| \d{4}-\d\d-\d\d \| all \| 1 \| 1 \| 1 \| \d+ \| - \| \S+ \|\n` +
		`\| \d{4}-\d\d-\d\d \| covered \| 1 \| 1 \| 0 \| \d+ \| 61\.0 % \| \S+ \|\n` +
		`\| \d{4}-\d\d-\d\d \| good \| 1 \| 0 \| 0 \| \d+ \| - \| \S+ \|\n` + endOfDiary + `more\n$`)
	if !want.Match(got) {
		t.Errorf("the page is\n%s\n%s", got, &out)
	}
	if !strings.Contains(out.String(), "\n  covered: two races\n") {
		t.Errorf("the failure of a script is not listed\n%s", &out)
	}
}

// TestBeside: a part with "&" runs while the next ones do, and all of it counts.
func TestBeside(t *testing.T) {
	dir := probe(t, map[string]string{"page.md": endOfDiary,
		"probe_test.go": "package probe\nimport \"testing\"\nfunc TestGood(*testing.T) {}\n" +
			"func TestBad(t *testing.T) { t.Fail() }\nfunc TestNot(t *testing.T) { t.Skip(\"why\") }\n"})
	page := filepath.Join(dir, "page.md")
	const test = " && CGO_ENABLED=0 " + goTest
	// Each waits for a file of the other.
	meet := func(mine, others string) string {
		return "cd " + dir + " && touch " + mine + " && timeout 60 sh -c 'until [ -e " + others + " ]; do sleep 0.05; done'"
	}
	var out bytes.Buffer
	code := run(&out, "", false, false, second{}, page, []string{"first=true",
		"sim&=" + meet("a", "b") + test + "./...", "next=" + meet("b", "a") + test + "-run Good ./..."})
	if want := "\nfailed:\n  sim: probe TestBad\n\n2 passed, 1 failed, 1 skipped\n"; code != 1 ||
		!strings.HasSuffix(out.String(), want) || !strings.Contains(out.String(), "\n  why\n      probe TestNot\n") {
		t.Errorf("exit code %d\n%s", code, &out)
	}
	rows, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" | sim | 1 | 1 | 1 | ", " | next | 1 | 0 | 0 | "} {
		if !strings.Contains(string(rows), want) {
			t.Errorf("no row %q in\n%s", want, rows)
		}
	}
	for _, bad := range []string{"no command", "=true", "&=true"} {
		out.Reset()
		if code := run(&out, "", false, false, second{}, "", []string{"first=touch " + filepath.Join(dir, "ran"), bad}); code != 2 {
			t.Errorf("%q: exit code %d\n%s", bad, code, &out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("parts ran before the list was refused")
	}
}

// TestOutputIsCut keeps the end of a long output, and the beginning of a crash.
func TestOutputIsCut(t *testing.T) {
	t.Parallel()
	var kept tail
	long := strings.Repeat("x", 999) + "\n"
	for range 4 * mostOutput / len(long) {
		kept.add(long)
	}
	kept.add("panic: seed 7 hangs\n")
	for range 4 * mostOutput / len(long) {
		kept.add(long)
	}
	got := string(kept.b)
	if !strings.HasPrefix(got, "... cut\n") || !strings.Contains(got, "\npanic: seed 7 hangs\n") ||
		!strings.HasSuffix(got, "... cut\n") || len(got) > 4*mostOutput {
		t.Errorf("%d bytes, from %q to %q", len(got), got[:20], got[len(got)-20:])
	}
}
