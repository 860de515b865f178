package clustermaster_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// room is one line of the table in docs/architecture.md: what a package may
// import of this module, and why nothing else.
type room struct {
	imports []string // generated gRPC code beside the room is free
	why     string   // said when an arrow is not in imports
}

var rooms = map[string]room{
	"cmd/clustermaster":   {[]string{"*"}, "the composition root joins everything; nothing imports it"},
	"dev":                 {[]string{"simminion"}, "the playground starts processes and simulated minions; it has no part of a master"},
	"bench":               {[]string{"internal/chart", "dev", "operator", "simminion", "transport/minion", "wire", "gather"}, "the load generator is a client: it must run against any master"},
	"e2e":                 {[]string{"dev"}, "black-box tests know processes only"},
	"faults":              {nil, "black-box tests know processes only"},
	"conformance":         {[]string{"simminion", "transport/minion", "wire"}, "a minion's side, against any master"},
	"commands":            {[]string{"e2e", "transport/minion", "wire"}, "black-box tests: operators and one stranger, against any master"},
	"cli":                 {[]string{"config", "gather", "internal/fnmatch", "internal/pytext", "internal/yaml11", "operator", "output", "wire"}, "commands ask the local socket, never cluster or master"},
	"output":              {[]string{"internal/pytext", "internal/yaml11", "wire"}, "outputters turn values into text"},
	"runner":              {[]string{"internal/fnmatch", "internal/pytext", "wire"}, "runner functions know no sockets and ask through interfaces of their own"},
	"backup":              {[]string{"cluster/fsm"}, "the form of a file; what is saved and where is told by the composition root"},
	"operator":            {[]string{"acl", "auth", "gather", "internal/unixsock", "wire"}, "the socket translates; it neither renders nor decides"},
	"auth":                {[]string{"acl", "wire"}, "back ends know neither who asks nor how masters agree"},
	"acl":                 {[]string{"internal/pytext", "target", "wire"}, "rights are functions of the options; who calls is told"},
	"master":              {[]string{"acl", "cluster", "event", "internal/pytext", "internal/yaml11", "jobcache", "keystore", "target", "wire"}, "request handlers know neither how bytes travel nor where data lies"},
	"reactor":             {[]string{"event", "internal/fnmatch", "internal/pytext", "internal/smallfile", "internal/yaml11", "render", "state", "wire"}, "reactions are read from files and compiled as states are; who publishes and runs functions is told"},
	"schedule":            {[]string{"cluster/fsm", "internal/pytext", "wire"}, "when entries are due follows from option, state and clock; who agrees and who runs is told"},
	"gather":              {[]string{"internal/pytext", "wire"}, "the algorithm reaches a master through an interface"},
	"userkeys":            {[]string{"cluster/fsm", "internal/durable", "wire"}, "files and agreed keys; what a key is good for is told by master and acl"},
	"render":              {[]string{"internal/yaml11", "wire"}, "templates ask their Host; the room knows no files and no minions"},
	"fileserver":          {[]string{"internal/fnmatch", "internal/pyregex", "wire"}, "files know no minions and no peers"},
	"modules":             {[]string{"internal/dictupdate", "internal/fnmatch", "internal/pyregex", "internal/pytext", "internal/smallfile", "internal/yaml11", "target", "wire"}, "functions ask everything else through interfaces"},
	"mastergrains":        {[]string{"wire"}, "a machine is looked at; nobody is asked"},
	"tops":                {[]string{"internal/dictupdate", "internal/smallfile", "render", "wire"}, "classes are files and a command's words; who asks is told"},
	"pillar":              {[]string{"internal/dictupdate", "internal/fnmatch", "internal/pyregex", "internal/pytext", "internal/smallfile", "internal/yaml11", "modules", "render", "target", "wire"}, "pillars are made of files and functions that are asked through interfaces"},
	"state":               {[]string{"internal/dictupdate", "internal/fnmatch", "internal/pytext", "modules", "render", "wire"}, "the compiler asks for files, functions and events through interfaces"},
	"states":              {[]string{"gather", "internal/fnmatch", "internal/pyregex", "internal/pytext", "modules", "state", "wire"}, "state functions ask for minions and runners through interfaces"},
	"event":               {[]string{"wire"}, "the bus knows tags, not what they mean"},
	"event/eventtest":     {[]string{"event"}, "a kit of tests"},
	"event/localbus":      {[]string{"event", "internal/unixsock", "wire"}, "sockets of the machine's own processes; what a tag means is nobody's here"},
	"target":              {[]string{"internal/fnmatch", "internal/pyregex", "wire"}, "matchers are functions of what a Source says"},
	"internal/logtest":    {nil, "a kit of tests"},
	"internal/salttrees":  {[]string{"internal/kept", "internal/yaml11", "wire"}, "a kit of tests"},
	"internal/kept":       {nil, "a kit of tests"},
	"render/rendertest":   {[]string{"render"}, "the renderer of tests"},
	"ringstore/ringtest":  {[]string{"hashring", "ringstore"}, "the stores of tests"},
	"target/targettest":   {[]string{"target", "wire"}, "the world of tests"},
	"jobcache":            {[]string{"ringstore", "wire"}, "typed records; Pebble and RPC are the ring store's"},
	"jobcache/localcache": {[]string{"event", "jobcache", "wire"}, "files for Salt's clients; who ordered a job is told"},
	"miniondata":          {[]string{"ringstore", "target", "wire"}, "typed records; Pebble and RPC are the ring store's"},
	"banks":               {[]string{"ringstore", "wire"}, "banks and keys; Pebble and RPC are the ring store's, minions' data are asked through an interface"},
	"pushed":              {[]string{"ringstore"}, "pieces of files; Pebble and RPC are the ring store's"},
	"ringstore":           {[]string{"hashring"}, "the store does not know what a job is"},
	"statesync":           {[]string{"internal/durable", "wire"}, "trees and blobs; who the peers are is told through an interface"},
	"keystore":            {[]string{"cluster/fsm", "wire"}, "keys lie on the replicated state; no transport"},
	"cluster":             {[]string{"cluster/fsm", "hashring", "internal/durable", "transport/peer", "wire"}, "the Raft node does not know Salt's protocol"},
	"cluster/fsm":         {nil, "the replicated state is pure"},
	"cluster/clustertest": {[]string{"cluster", "cluster/fsm", "internal/logtest", "transport/peer", "wire"}, "the cluster kit of tests"},
	"simulation":          {[]string{"cluster/fsm", "hashring", "internal/chart"}, "pure rooms only: nothing is started"},
	"hashring":            {nil, "placement is arithmetic"},
	"simminion":           {[]string{"target", "transport/minion", "wire"}, "the minion's side of the protocol"},
	"transport/minion":    {nil, "sockets know no messages"},
	"transport/peer":      {[]string{"internal/durable"}, "sockets know no messages"},
	"wire":                {nil, "bytes to types: pure"},
	"config":              {[]string{"internal/yaml11"}, "options know no room"},
	"internal/dictupdate": {[]string{"wire"}, "merging of wire values"},
	"internal/chart":      {nil, "a leaf"},
	"internal/durable":    {nil, "a leaf"},
	"internal/smallfile":  {nil, "a leaf"},
	"internal/unixsock":   {nil, "a leaf"},
	"internal/fnmatch":    {nil, "a leaf"},
	"internal/health":     {nil, "a leaf"},
	"internal/pyregex":    {nil, "a leaf"},
	"internal/pytext":     {[]string{"wire"}, "Python's texts of wire values"},
	"internal/saltlog":    {nil, "a leaf"},
	"internal/yaml11":     {[]string{"wire"}, "YAML in, wire values out"},
}

// TestArrowsPointDown compares the imports with the table of rooms.
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
		r, ok := rooms[name]
		if !ok {
			t.Errorf("package %s is not in the table of rooms: name what it may import and why, here and in docs/architecture.md", name)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			generated := strings.HasSuffix(to, "pb") && path.Dir(to) == name
			if !ours || generated || slices.Contains(r.imports, "*") || slices.Contains(r.imports, to) {
				continue
			}
			t.Errorf("%s must not import %s: %s", name, to, r.why)
		}
	}
}
