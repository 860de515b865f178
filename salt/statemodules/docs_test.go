package statemodules

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"clustermaster/value"
)

var update = flag.Bool("update", false, "write docs/state-functions.md")

const docPath = "../../docs/state-functions.md"

// sources maps each module to the file of Salt 3008 that defines its functions.
var sources = map[string]string{
	"cmd": "salt/states/cmd.py", "event": "salt/states/event.py", "http": "salt/states/http.py",
	"module": "salt/states/module.py",
	"salt":   "salt/states/saltmod.py", "test": "salt/states/test.py",
}

// TestDocs: the manual lists exactly the functions of the table, with their parameters
// and their source in Salt.
func TestDocs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`# Functions of states

What states of an orchestration (` + "`" + `salt-run state.orchestrate` + "`" + `) may call. They run on the master
where the orchestration was started, as the master's user: commands, files and addresses are that
machine's, jobs go to the minions of all masters, events are those of the whole cluster. Parameters,
results and texts are Salt 3008's; docs/differences.md says where they are not. Any other function
fails with Salt's text, "State 'x.y' was not found in SLS 'z'". ` + "`" + `module.run` + "`" + ` calls the functions of
template-functions.md. The list is written by ` + "`" + `go test ./salt/statemodules -run TestDocs -update` + "`" + `.

| function | parameters | source |
|---|---|---|
`)
	all := New(Deps{})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		module, fun, _ := strings.Cut(name, ".")
		if fun == "mod_watch" { // no state names this function
			continue
		}
		source, ok := sources[module]
		if !ok {
			t.Errorf("module %s has no source", module)
		}
		var params []string
		for _, p := range all[name].Params {
			if p.Required {
				params = append(params, p.Name)
			} else {
				params = append(params, p.Name+"="+value.Repr(p.Default))
			}
		}
		if all[name].VarKwargs {
			params = append(params, "...")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, strings.Join(params, ", "), source)
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
		t.Errorf("%s is out of date: go test ./salt/statemodules -run TestDocs -update", docPath)
	}
}
