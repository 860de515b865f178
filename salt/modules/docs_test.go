package modules

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocs: the manual names exactly the modules that are native.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/template-functions.md")
	if err != nil {
		t.Fatal(err)
	}
	var named, native []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllSubmatch(text, -1) {
		named = append(named, string(m[1]))
	}
	for _, name := range New(Deps{}).Names() {
		module, _, _ := strings.Cut(name, ".")
		native = append(native, module)
	}
	slices.Sort(native)
	if native = slices.Compact(native); !slices.Equal(named, native) {
		t.Errorf("docs/template-functions.md names %q\nnative are %q", named, native)
	}
}
