package statemodules

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "ask Salt for testdata/answers.jsonl again")

// TestDocs: the manual names exactly the modules that are native here.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/state-functions.md")
	if err != nil {
		t.Fatal(err)
	}
	var named, native []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllSubmatch(text, -1) {
		named = append(named, string(m[1]))
	}
	for name := range New(Deps{}) {
		module, _, _ := strings.Cut(name, ".")
		native = append(native, module)
	}
	slices.Sort(native)
	if native = slices.Compact(native); !slices.Equal(named, native) {
		t.Errorf("docs/state-functions.md names %q; native are %q", named, native)
	}
}
