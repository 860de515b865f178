package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with a package of each fate.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module probe\n\ngo 1.24\n",
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
	} {
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

const goTest = "go test -json -vet=off "

func TestEveryFateIsReported(t *testing.T) {
	dir := module(t)
	var out bytes.Buffer
	code := run(&out, "", false, []string{
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
		if code := run(&out, allow, tt.strict, []string{"part=" + tt.command}); code != tt.code ||
			!strings.HasSuffix(out.String(), tt.want) {
			t.Errorf("%s: exit code %d\n%s", tt.name, code, &out)
		}
	}
	var out bytes.Buffer
	if code := run(&out, allow+"x", true, nil); code != 2 {
		t.Errorf("without the file: exit code %d\n%s", code, &out)
	}
}
