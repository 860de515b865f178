package clustermaster_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// arrows is one line of the table in docs/architecture.md: what a package may
// import of this module, and why nothing else.
type arrows struct {
	imports []string // generated gRPC code beside the package is free
	why     string   // said when an arrow is not in imports
}

var packages = map[string]arrows{
	"cmd/clustermaster": {[]string{"*"},
		"the composition root joins everything; nothing imports it"},
	"tools/mutate": {nil, "it changes a copy of the sources, and imports none of them"},
	"tools/setup": {[]string{"lb"},
		"first configurations are texts; config reads them"},
	"tools/migrate": {[]string{"config", "keystore", "salt/cli", "serve/operator", "store/durable",
		"value", "value/yaml11", "wire"},
		"a box is read and its master exchanged; the master itself takes keys and caches in"},
	"tools/doctor": {[]string{"config", "salt/cli", "serve/checkup"},
		"the checks are a master's own; the command asks for them"},
	"serve/checkup": {[]string{"cluster", "config", "serve/event", "value"},
		"a machine is looked at, and reports are exchanged as events"},
	"tools/status": {[]string{"salt/cli"},
		"pages about a cluster are made of what salt-run prints"},
	"lb":           {nil, "the balancer's configuration, a leaf"},
	"store/memory": {[]string{"value"}, "a bound; what is bounded is known elsewhere"},
	"tools/dev": {[]string{"config/saltlog", "lb", "tools/simminion"},
		"the playground starts processes and simulated minions; it has no part of a master"},
	"tools/bench": {[]string{"tools/figure", "salt/gather", "serve/operator",
		"tools/dev", "tools/simminion", "transport/minion", "value", "wire"},
		"the load generator is a client: it must run against any master"},
	"tools/containers": {nil, "an image and orders for runtimes: texts"},
	"tools/release":    {nil, "a program is read; it knows no package"},
	"tools/monitoring": {nil, "rules and a dashboard are texts; who asks Prometheus and who draws is others'"},
	"test/e2e": {[]string{"lb", "tools/dev", "tools/monitoring"},
		"black-box tests know processes only"},
	"test/failover":  {nil, "black-box tests know processes only"},
	"test/saltsuite": {nil, "a page and its lists: texts"},
	"test/faults":    {nil, "black-box tests know processes only"},
	"test/differential": {[]string{"salt/render", "salt/target", "test/salttrees", "test/unpacked",
		"value", "value/fnmatch", "value/yaml11"},
		"libraries of Salt beside ours; no masters"},
	"test/knownbug":  {nil, "names, and conditions that are false but under a build tag"},
	"test/powerdisk": {nil, "a file system without power; it knows no master"},
	"test/history":   {nil, "what clients saw, and whether one machine could have said so"},
	"test/sim":       {nil, "masters of real parts on a network and disks of the test's own"},
	"test/conformance": {[]string{"tools/simminion", "transport/minion"},
		"a minion's side, against any master"},
	"test/commands": {[]string{"test/e2e", "transport/minion"},
		"black-box tests: operators and one stranger, against any master"},
	"salt/cli": {[]string{"config", "value/fnmatch", "value/yaml11", "salt/gather",
		"salt/output", "salt/saltpython", "salt/target", "serve/operator", "value", "wire"},
		"commands ask the local socket, never cluster or master"},
	"salt/output": {[]string{"value/yaml11", "value"},
		"outputters turn values into text"},
	"salt/function": {[]string{"value"},
		"signatures and their errors; what a function does is nobody's here"},
	"salt/runner": {[]string{"store/memory", "value/dateutil", "value/fnmatch", "value/pyregex",
		"salt/function", "value", "wire"},
		"runner functions know no sockets and ask through interfaces of their own"},
	"cluster/backup": {[]string{"cluster/fsm", "store/durable", "store/smallfile",
		"store/jobcache", "value", "wire"}, "backups ask the cluster through an interface"},
	"serve/operator": {[]string{"serve/origin", "serve/unixsock", "salt/gather",
		"serve/acl", "serve/auth", "value"},
		"the socket translates; it neither renders nor decides"},
	"serve/clusterview": {[]string{"cluster", "cluster/backup", "cluster/fsm", "cluster/level",
		"salt/runner", "statesync", "store/ringstore", "value"},
		"views and orders of the cluster for runner functions; how it changes is the cluster's"},
	"serve/orders": {[]string{"store/memory", "serve/origin", "keystore", "salt/function",
		"salt/gather", "salt/orchestrate", "salt/pythonhost", "salt/reactor", "salt/runner",
		"salt/saltpython", "salt/schedule", "salt/statemodules", "salt/target", "serve/acl",
		"serve/event", "serve/master",
		"serve/operator", "serve/traces", "store/jobcache", "value", "wire"},
		"orders are carried out by other packages"},
	"serve/auth": {[]string{"cluster/fsm", "serve/acl", "serve/seldom", "value", "value/hashtype"},
		"back ends know not who asks; tokens lie on the replicated state"},
	"config/settings": {[]string{"cluster", "cluster/backup", "config", "keystore",
		"salt/engine", "salt/hosted", "salt/mastergrains", "salt/orchestrate", "salt/pillar",
		"salt/pythonhost", "salt/render",
		"salt/returner", "salt/schedule", "serve/acl", "serve/auth", "serve/event/localbus",
		"serve/fileserver", "serve/gitfs",
		"serve/health", "serve/master", "serve/minionfs", "serve/traces", "statesync",
		"salt/saltpython", "store/allotment", "store/datadisk", "store/durable", "store/seal",
		"store/jobcache/localcache", "store/miniondata", "store/ringstore", "serve/userkeys",
		"transport/minion", "transport/peer", "value", "wire"},
		"options to Options: it makes nothing"},
	"serve/daemon": {[]string{"config", "serve/health", "config/saltlog", "store/smallfile"},
		"the process knows options, log and signals; what it runs is given to it"},
	"serve/acl": {[]string{"salt/target", "value", "value/yaml11"},
		"rights are functions of the options; the caller is passed in"},
	"serve/traces": {[]string{"value"},
		"which spans a job has; how it is published and stored is its callers'"},
	"serve/master": {[]string{"store/memory", "cluster", "serve/origin", "value/yaml11", "keystore",
		"salt/target", "serve/acl", "serve/event", "serve/seldom", "serve/traces",
		"store/allotment", "store/jobcache", "value", "wire"}, "request handlers know neither how bytes travel nor where data lies"},
	"salt/reactor": {[]string{"cluster/fsm", "value/fnmatch", "store/smallfile",
		"value/yaml11", "salt/function", "salt/modules", "salt/orchestrate", "salt/render",
		"serve/event", "value"},
		"reactions are read from files and compiled as states are; who publishes and runs functions is told"},
	"salt/schedule": {[]string{"cluster/fsm", "value", "value/dateutil"},
		"when entries are due follows from option, state and clock; who agrees and who runs is told"},
	"salt/gather": {[]string{"value"},
		"the algorithm reaches a master through an interface"},
	"serve/userkeys": {[]string{"cluster/fsm", "store/durable", "wire"},
		"files and agreed keys; master and acl decide what a key is good for"},
	"salt/render": {[]string{"value/yaml11", "value"},
		"templates ask their Host; it knows no files and no minions"},
	"serve/fileserver": {[]string{"value/fnmatch", "value/hashtype", "value/pyregex", "value"},
		"files know no minions and no peers"},
	"serve/gitfs": {[]string{"cluster/fsm", "store/durable", "value/fnmatch", "value/hashtype",
		"value/pyregex", "serve/fileserver", "transport/pace", "value"},
		"remotes become files; how masters agree is told through an interface"},
	"serve/minionfs": {[]string{"serve/fileserver", "store/ringstore", "store/uploads",
		"value/hashtype", "value/pyregex"}, "pushed files become files of the file server"},
	"serve/gitfs/gitfstest": {[]string{"cluster/fsm"}, "a kit of tests"},
	"serve/fileview": {[]string{"salt/pillar", "salt/runner", "serve/fileserver", "serve/gitfs",
		"store/uploads", "value"},
		"views of files for runner functions and pillars; what serves them knows neither"},
	"salt/modules": {[]string{"value/fnmatch", "value/pyregex", "store/smallfile",
		"value/yaml11", "salt/function", "salt/target", "value"},
		"functions ask everything else through interfaces"},
	"salt/hosted": {[]string{"salt/function", "salt/modules", "salt/orchestrate", "salt/pillar",
		"salt/pythonhost", "salt/render", "salt/runner", "value"},
		"who answers is decided here; how Python runs and pillars are made is theirs"},
	"salt/saltpython": {nil, "a leaf"},
	"salt/pythonhost": {[]string{"value"},
		"Python is asked by whoever holds the Host; what it asks back is told"},
	"salt/engine": {[]string{"salt/pythonhost", "value"},
		"when engines start and end; who leads and how Python runs is told"},
	"salt/returner": {[]string{"store/outbox", "value", "value/fnmatch"},
		"what is kept for returners, and when they get it; who runs them is told"},
	"store/outbox": {[]string{"cluster/level", "store/ringstore/diskfs", "store/seal"},
		"queues of bytes on disk; what they mean is nobody's here"},
	"salt/mastergrains": {[]string{"store/smallfile", "value", "value/yaml11"},
		"a machine and a file are looked at; the configuration is told"},
	"salt/mastertops": {[]string{"salt/render", "value", "wire"},
		"classes are a command's words; who asks is told"},
	"salt/pillar": {[]string{"value/fnmatch", "value/pyregex",
		"value/yaml11", "salt/function", "salt/modules", "salt/render", "salt/target", "value",
		"wire"}, "pillars are made of files and functions that are asked through interfaces"},
	"salt/orchestrate": {[]string{"value/fnmatch", "salt/function", "salt/modules",
		"salt/render", "value"},
		"the compiler asks for files, functions and events through interfaces"},
	"salt/statemodules": {[]string{"store/memory", "value/fnmatch", "value/pyregex", "salt/function",
		"salt/gather", "salt/modules", "salt/orchestrate", "value", "wire"},
		"state functions ask for minions and runners through interfaces"},
	"serve/event": {[]string{"value", "wire"},
		"the bus knows tags, not what they mean"},
	"serve/event/eventtest": {[]string{"serve/event"}, "a kit of tests"},
	"serve/event/localbus": {[]string{"serve/unixsock", "serve/event", "value"},
		"sockets of the machine's own processes; what a tag means is nobody's here"},
	"salt/target": {[]string{"value/fnmatch", "value/pyregex", "value"},
		"matchers are functions of what a Source says"},
	"test/logtest":     {nil, "a kit of tests"},
	"test/sshtest":     {nil, "a kit of tests"},
	"tools/changelog":  {nil, "makes a page of files"},
	"tools/testreport": {nil, "runs the tests of any package and knows none"},
	"test/salttrees": {[]string{"test/answers", "value/yaml11", "value"},
		"a kit of tests"},
	"test/answers":  {nil, "a kit of tests"},
	"test/unpacked": {nil, "names a folder"},
	"salt/hosted/hostedtest": {[]string{"salt/hosted", "salt/modules", "salt/pythonhost",
		"salt/render", "salt/render/rendertest", "value"}, "a kit of tests"},
	"salt/render/rendertest": {[]string{"salt/render", "test/unpacked"},
		"the renderer of tests"},
	"store/ringstore/ringtest": {[]string{"hashring", "store/ringstore"}, "the stores of tests"},
	"salt/target/targettest":   {[]string{"salt/target", "value"}, "the world of tests"},
	"store/allotment": {nil,
		"an account; what is stored is counted by the packages that store it"},
	"store/jobcache": {[]string{"store/memory", "store/allotment", "store/ringstore", "value", "wire"},
		"typed records; Pebble and RPC are the ring store's"},
	"store/jobcache/localcache": {[]string{"serve/event", "store/durable", "store/jobcache", "store/ringstore",
		"value", "value/hashtype", "wire"},
		"files for Salt's clients; who ordered a job is told"},
	"store/miniondata": {[]string{"salt/target", "store/allotment", "store/ringstore", "value"},
		"typed records; Pebble and RPC are the ring store's"},
	"store/cache": {[]string{"store/durable", "store/ringstore", "value", "wire"},
		"banks and keys; Pebble and RPC are the ring store's, minions' data are asked through an interface"},
	"store/uploads": {[]string{"store/allotment", "store/ringstore", "wire"},
		"pieces of files; Pebble and RPC are the ring store's"},
	"store/ringstore": {[]string{"store/memory", "cluster/level", "hashring", "store/seal",
		"store/ringstore/disk", "store/ringstore/query", "store/ringstore/remote",
		"store/ringstore/rings", "test/knownbug"}, "the store does not know what a job is"},
	"store/ringstore/query": {[]string{"hashring", "store/ringstore/disk",
		"store/ringstore/ringpb", "store/ringstore/rings"},
		"many records; an interface tells who the members are and asks them"},
	"store/ringstore/remote": {[]string{"cluster/level", "store/ringstore/disk",
		"store/ringstore/ringpb"},
		"calls to other masters; whom to call and how to connect is told"},
	"store/ringstore/rings": {[]string{"hashring", "store/ringstore/disk",
		"store/ringstore/ringpb"}, "values; when a ring changes is the ring store's"},
	"store/ringstore/disk": {[]string{"cluster/level", "store/ringstore/diskfs", "store/seal",
		"test/knownbug"}, "one master's records; no ring, no other master, no RPC"},
	"store/ringstore/diskfs": {[]string{"store/seal"}, "file systems know no records"},
	"statesync": {[]string{"cluster/fsm", "store/durable", "transport/pace", "value/fnmatch"},
		"trees and blobs; who the peers are is told through an interface"},
	"keystore": {[]string{"cluster/fsm", "serve/origin", "store/durable", "value", "wire"},
		"keys lie on the replicated state; no transport"},
	"cluster": {[]string{"cluster/fsm", "cluster/level", "hashring",
		"store/durable", "serve/origin", "store/seal", "test/knownbug", "transport/peer", "wire"},
		"the Raft node does not know Salt's protocol"},
	"cluster/fsm": {[]string{"cluster/level"},
		"the replicated state is pure; what belongs to which level is a table"},
	"cluster/nextlevel": {[]string{"cluster", "cluster/clusterpb", "cluster/fsm",
		"salt/runner", "transport/peer", "value"},
		"what the next level may add, for tests of upgrades"},
	"cluster/level": {nil, "a table, and a look at messages"},
	"cluster/clustertest": {[]string{"cluster", "cluster/fsm", "test/logtest",
		"transport/peer"}, "the cluster kit of tests"},
	"tools/simulation": {[]string{"cluster/fsm", "hashring", "tools/figure"},
		"pure packages only: nothing is started"},
	"hashring": {nil, "placement is arithmetic"},
	"tools/simminion": {[]string{"salt/target", "transport/minion", "value", "wire"},
		"the minion's side of the protocol"},
	"transport/minion": {[]string{"serve/seldom"}, "sockets know no messages"},
	"transport/pace":   {nil, "rates and silence, of any message"},
	"transport/peer": {[]string{"cluster/level", "serve/seldom", "store/durable", "store/seal", "test/knownbug"},
		"sockets know no messages"},
	"value":           {nil, "values and Python's rules for them: pure"},
	"value/valuetest": {[]string{"value"}, "a kit of tests"},
	"wire":            {[]string{"value"}, "bytes to types: pure"},
	"config": {[]string{"store/datadisk", "config/saltlog", "salt/saltpython",
		"store/seal", "value/fnmatch", "value/yaml11", "value"}, "options know no package that they are for"},
	"tools/figure": {nil, "a leaf"},
	"tools/soak":   {nil, "a leaf"},
	"tools/pages": {[]string{"hashring", "tools/bench", "tools/figure", "tools/monitoring",
		"tools/simulation", "tools/soak"},
		"pages and plots are made of what was measured"},
	"store/datadisk": {nil, "a leaf"},
	"store/durable":  {nil, "a leaf"},
	"store/seal": {[]string{"store/durable"},
		"ciphers and where their key comes from"},
	"store/smallfile": {nil, "a leaf"},
	"serve/unixsock":  {nil, "a leaf"},
	"value/dateutil":  {nil, "a leaf"},
	"value/fnmatch":   {nil, "a leaf"},
	"serve/health": {[]string{"store/smallfile"},
		"probes and metrics; what ready means and what is counted is asked"},
	"serve/origin": {nil,
		"sockets and ports say who orders; the audit trail keeps it"},
	"value/hashtype": {nil, "a leaf"},
	"value/pyregex":  {[]string{"value/fnmatch"}, "expressions in Python's dialect"},
	"config/saltlog": {nil, "a leaf"},
	"serve/seldom":   {nil, "a leaf"},
	"value/yaml11":   {[]string{"value"}, "YAML in, wire values out"},
}

// TestArrowsPointDown compares the imports with the table of packages.
func TestArrowsPointDown(t *testing.T) {
	t.Parallel()
	const module = "clustermaster/"
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok || strings.HasSuffix(name, "pb") {
			continue // the root holds this test; generated code imports nothing of ours
		}
		r, ok := packages[name]
		if !ok {
			t.Errorf("package %s is not in the table of packages: name what it may import and why, here and in docs/architecture.md", name)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			generated := strings.HasSuffix(to, "pb") && path.Dir(to) == name
			if !ours || generated || slices.Contains(r.imports, "*") ||
				slices.Contains(r.imports, to) {
				continue
			}
			t.Errorf("%s must not import %s: %s", name, to, r.why)
		}
	}
}

// TestListing keeps the folders on top few enough to be read at a glance.
func TestListing(t *testing.T) {
	t.Parallel()
	folders := map[string]bool{}
	for _, name := range sources(t) {
		if top, _, nested := strings.Cut(name, "/"); nested && !strings.HasPrefix(top, ".") {
			folders[top] = true
		}
	}
	if len(folders) > 16 {
		t.Errorf("%d folders on top, at most 16: %v", len(folders),
			slices.Sorted(maps.Keys(folders)))
	}
}

// The command joins packages, and decides nothing.
func TestCommandIsShort(t *testing.T) {
	const most = 1499
	files, err := filepath.Glob("cmd/clustermaster/*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
	}
	if lines == 0 || lines > most {
		t.Errorf("cmd/clustermaster has %d lines, at most %d: move what decides to its package",
			lines, most)
	}
}
