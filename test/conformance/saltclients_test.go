package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/tools/simminion"
)

// TestSaltsOwnClients has Salt's own library and commands of three releases give orders, and wait
// for returns and events on the local bus. With CLUSTERMASTER_CONFORMANCE_MASTER they use Salt's
// master, which must answer the same.
func TestSaltsOwnClients(t *testing.T) {
	t.Parallel()
	venvs := e2e.Venvs(t)
	m := newMaster(t, real(), variant{name: "clients", options: `enable_clear_commands: True
auto_accept: True
external_auth: {auto: {alice: ['test.*', '@runner', '@wheel']}}
`})
	m.start(t)
	m.run(t, "web-a", "web-b")
	e2e.Eventually(t, 20*time.Second, "root has a key", func() error { return m.hasKey("root") })
	releases := []string{"3006.28", "3007.15", "3008.3"}
	if m.salt() {
		releases = []string{reference}
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			m.saltsOwnClients(t, filepath.Join(venvs, "salt-"+release, "bin", "python3"), release)
		})
	}
}

// run keeps simulated minions of a master alive until the test ends.
func (m *subject) run(t *testing.T, ids ...string) {
	t.Helper()
	key, err := simminion.NewKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	var fleet simminion.Fleet
	for _, id := range ids {
		minion, err := simminion.New(simminion.Config{
			ID: id, Key: key, Master: hostPort(m.Addr, e2e.RequestPort),
			AcceptanceWait: time.Second, Grains: dict("role", "role of "+id),
			Functions: map[string]simminion.Func{"test.fails": func(context.Context,
				simminion.Call) (any, error) {
				return nil, errors.New("it fails")
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		fleet.Minions = append(fleet.Minions, minion)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	if err := fleet.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// notThere is the output for a minion that does not return.
const notThere = `web-a:
    True
ghost:
    Minion did not return. [No response]
    The minions may not have all finished running and any remaining minions will return upon completion. To look up the return data for this job later, run the following command:
    
    salt-run jobs.lookup_jid JID
`

// A saltLine is the output of a command of Salt. Lines of several minions come in any order and are
// sorted.
type saltLine struct {
	line, out, err string
	code           int
	sorted         bool
}

// saltLines are what all releases run, followed by what only the newest runs.
var saltLines = []saltLine{
	{line: "salt * test.ping", out: "    True\n    True\nweb-a:\nweb-b:\n", sorted: true},
	{line: "salt -L web-a,ghost test.ping", out: notThere,
		err: "ERROR: Minions returned with non-zero exit code\n", code: 1},
	{line: "salt --async web-* test.ping", out: "Executed command with job ID: JID\n"},
	{line: "salt web-a test.fails", out: "web-a:\n    ERROR: it fails\n",
		err: "ERROR: Minions returned with non-zero exit code\n", code: 1},
	{line: "salt -a auto --username=alice --password=pw web-a test.ping",
		out: "web-a:\n    True\n"},
	{line: "salt-run jobs.lookup_jid JID", out: "web-a:\n    True\nweb-b:\n    True\n"},
	{line: "salt -G role:*web-b test.echo x --out=json", out: "{\n    \"web-b\": \"x\"\n}\n"},
	{line: "salt nosuch* test.ping",
		out: "No minions matched the target. No command was sent, no jid was assigned.\n",
		err: "ERROR: No return received\n", code: 2},
	{line: "salt -b 1 web-* test.ping --static --out=txt", out: "web-a: True\nweb-b: True\n",
		sorted: true},
	{line: "salt --show-jid web-a test.ping", out: "jid: JID\nweb-a:\n    True\n"},
	{line: "salt -t 1 web-a test.sleep 3", out: "web-a:\n    True\n"},
	{line: "salt -a auto --username=mallory --password=pw web-a test.ping",
		out: "Authorization error occurred.\n"},
	{line: "salt-run jobs.exit_success JID", out: "web-a:\n    True\nweb-b:\n    True\n"},
	{line: "salt-run manage.up", out: "- web-a\n- web-b\n"},
	{line: "salt-run event.send my/line", out: "True\n"},
	{line: "salt-key -l acc", out: "Accepted Keys:\nweb-a\nweb-b\n"},
}

// unclosed are warnings of 3008 about its own library.
var unclosed = regexp.MustCompile(`(?m)^(\[WARNING \] )?unclosed .*\n`)

// saltsOwnClients runs the library and the commands of the release whose interpreter is python.
func (m *subject) saltsOwnClients(t *testing.T, python, release string) {
	run := saltLines
	if release != reference {
		run = saltLines[:6]
	}
	var lines []string
	for _, l := range run {
		lines = append(lines, l.line)
	}
	packed, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	bus := hear(t, m.path("run"))
	cmd := exec.Command(python, filepath.Join("testdata", "salt_clients.py"), m.ConfDir,
		string(packed))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
	}
	got := map[string]any{}
	for line := range strings.Lines(string(out)) {
		var step []any
		if err := json.Unmarshal([]byte(line), &step); err != nil || len(step) != 2 {
			t.Fatalf("%q: %v", line, err)
		}
		got[fmt.Sprint(step[0])] = step[1]
	}
	const published = "map[jid:JID minions:[web-a]]"
	for name, want := range map[string]string{
		"local client":                 published,
		"local client, eauth":          published,
		"local client, token":          published,
		"local client, wrong token":    "AuthenticationError: Authentication error occurred.",
		"cmd":                          "[[web-a true] [web-b true]]",
		"cmd_iter":                     "[{'web-a': {'ret': 'x', 'retcode': 0, 'jid': 'JID'}} {'web-b': {'ret': 'x', 'retcode': 0, 'jid': 'JID'}}]",
		"cmd_async, get_cache_returns": "[[web-a true] [web-b true]]",
		"run_job, get_cli_returns":     "[web-a web-b]",
		"events":                       "[my/own [[bytes b'\\xff'] [deep [map[a:<nil>]]] [n 1.099511627776e+12] [text é]] my/master map[a:1] 524288]",
		"mk_token":                     "map[eauth:auto expire:EPOCH name:alice start:EPOCH token:TOKEN]",
		"get_token":                    "map[eauth:auto expire:EPOCH name:alice start:EPOCH token:TOKEN]",
		"runner client":                "map[jid:JID tag:salt/run/JID]",
		"runner client, eauth":         "map[jid:JID tag:salt/run/JID]",
		"runner client, wrong token":   `TokenAuthenticationError: Authentication failure of type "token" occurred.`,
		"runner client, waiting":       "map[args:[x] kwargs:map[]]",
		"wheel client":                 "[web-a web-b]",
		"wheel client, eauth":          "map[minions:[web-a web-b]]",
	} {
		text := jids.ReplaceAllString(tokenText.ReplaceAllString(fmt.Sprint(got[name]),
			"TOKEN"), "JID")
		if text = epoch.ReplaceAllString(text, "EPOCH"); !strings.HasPrefix(text, want) {
			t.Errorf("%s: %s, want %s", name, text, want)
		}
	}
	bus.wait(t, "my/own")
	if release == reference {
		bus.wait(t, "my/line")
	}
	for _, l := range run {
		ended, _ := got[l.line].([]any)
		if len(ended) != 3 {
			t.Errorf("%s: %v", l.line, got[l.line])
			continue
		}
		out, err := jids.ReplaceAllString(fmt.Sprint(ended[0]),
			"JID"), unclosed.ReplaceAllString(jids.ReplaceAllString(fmt.Sprint(ended[1]),
			"JID"), "")
		if l.sorted {
			out, l.out = sortedLines(out), sortedLines(l.out)
		}
		if out != l.out || err != l.err || ended[2] != float64(l.code) {
			t.Errorf("%s\nexit %v, want %d\n%s\nwant\n%s\nstderr %s\nwant   %s", l.line, ended[2],
				l.code, out, l.out, err, l.err)
		}
	}
}

func sortedLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}
