package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/salt/runner"
)

var updateFunctions = flag.Bool("update-functions", false, "write docs/runner-functions.md")

const functionsPage = `# Runner and wheel functions

What ` + "`salt-run`" + ` knows, and behind it the wheel functions that salt-api and reactions call. Each
text is the one that ` + "`salt-run -d`" + ` prints. A parameter with ` + "`=`" + ` may be left out.

` + "`make references`" + ` writes this page.
`

// TestFunctionsAreDocumented compares docs/runner-functions.md with the registries of a master.
func TestFunctionsAreDocumented(t *testing.T) {
	r := openWhole(t, prometheus.NewRegistry())
	var b strings.Builder
	b.WriteString(functionsPage)
	count := 0
	for _, part := range []struct {
		title string
		from  *runner.Runner
	}{{"Runner functions", r.functions.Runners}, {"Wheel functions", r.functions.Wheels}} {
		fmt.Fprintf(&b, "\n## %s\n", part.title)
		for _, p := range part.from.Docs("") {
			name, doc := p.Key.(string), strings.TrimSpace(p.Value.(string))
			f, ok := part.from.Lookup(name)
			if !ok || doc == "" {
				t.Errorf("%s has no text", name)
			}
			var params []string
			for _, param := range f.Params {
				if !param.Required {
					param.Name += "="
				}
				params = append(params, param.Name)
			}
			signature := strings.Join(append([]string{name}, params...), " ")
			fmt.Fprintf(&b, "\n### %s\n\n```text\n%s\n\n%s\n```\n", name, signature, doc)
			count++
		}
	}
	if count < 150 {
		t.Errorf("%d functions: a family is missing", count)
	}
	path := filepath.Join("..", "..", "docs", "runner-functions.md")
	if *updateFunctions {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("docs/runner-functions.md is not what the master knows: run make references")
	}
}
