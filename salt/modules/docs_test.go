package modules

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/template-functions.md")

const docPath = "../../docs/template-functions.md"

// TestDocs: the manual lists exactly the functions of this package, with their parameters.
func TestDocs(t *testing.T) {
	t.Parallel()
	m := New(Deps{})
	var b strings.Builder
	b.WriteString(`# Functions in templates

What ` + "`" + `salt['module.function'](...)` + "`" + ` may call in pillar and top files. A function is native,
written in Go, where the cluster owns its data (grains, pillar, match, mine, config, cp, data,
runners) or where everyday templates call it often (cmd, file, hashutil, http, defaults, slsutil,
test and a few more); the table lists these. All others, such as those of network, user, group,
timezone and random, are Salt's own and run in the Python host ([python.md](python.md)), with the
results of the installed release. On a machine without Salt these are missing: a template that calls
one gets an error with the function's name and the package to install.

Grains, pillar and options are the minion's (but ` + "`" + `opts.id` + "`" + `, which native functions see as the
master's, as in Salt 3008); commands, files and addresses are the master's. Parameters and results
of native functions are those of Salt 3008's module of that name (salt/modules/MODULE.py). Where no
shell is named it is the master's $SHELL, or /bin/sh. The table is written by
` + "`" + `go test ./salt/modules -run TestDocs -update` + "`" + `.

| function | parameters |
|---|---|
`)
	for _, name := range m.Names() {
		f := m.byName[name]
		var params []string
		for _, p := range f.params {
			switch {
			case p.Required:
				params = append(params, p.Name)
			case p.Default == nil:
				params = append(params, p.Name+"=None")
			default:
				params = append(params, fmt.Sprintf("%s=%v", p.Name, p.Default))
			}
		}
		if f.varArgs || f.varKwargs {
			params = append(params, "...")
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, strings.Join(params, ", "))
	}
	if *update {
		if err := os.WriteFile(docPath, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is out of date: go test ./salt/modules -run TestDocs -update", docPath)
	}
}
