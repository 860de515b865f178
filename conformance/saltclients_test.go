package conformance

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/e2e"
)

// TestSaltsOwnClients orders with the clients of Salt's library: what works with our master, and what needs Salt's event bus.
func TestSaltsOwnClients(t *testing.T) {
	venvs := e2e.Venvs(t)
	m := newMaster(t, ours, variant{name: "clients", options: `enable_clear_commands: True
auto_accept: True
external_auth: {auto: {alice: ['test.*', '@runner', '@wheel']}}
`})
	m.start(t)
	m.signIn(t, "web-a", 3)
	e2e.Eventually(t, 20*time.Second, "root has a key", func() error { return m.hasKey("root") })
	for _, release := range []string{"3006.28", "3007.15", "3008.3"} {
		t.Run(release, func(t *testing.T) { m.saltsOwnClients(t, filepath.Join(venvs, "salt-"+release, "bin")) })
	}
}

// saltsOwnClients runs the clients of the release whose programs are in bin.
func (m *subject) saltsOwnClients(t *testing.T, bin string) {
	out, err := exec.Command(filepath.Join(bin, "python3"), filepath.Join("testdata", "salt_clients.py"), m.ConfDir).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(out)) {
		var step []any
		if err := json.Unmarshal([]byte(line), &step); err != nil || len(step) != 2 {
			t.Fatalf("%q: %v", line, err)
		}
		text := jids.ReplaceAllString(tokenText.ReplaceAllString(fmt.Sprint(step[1]), "TOKEN"), "JID")
		got[fmt.Sprint(step[0])] = epoch.ReplaceAllString(text, "EPOCH")
	}
	const published = "map[jid:JID minions:[web-a]]"
	for name, want := range map[string]string{
		"local client":               published,
		"local client, eauth":        published,
		"local client, token":        published,
		"local client, wrong token":  "AuthenticationError: Authentication error occurred.",
		"mk_token":                   "map[eauth:auto expire:EPOCH name:alice start:EPOCH token:TOKEN]",
		"get_token":                  "map[eauth:auto expire:EPOCH name:alice start:EPOCH token:TOKEN]",
		"runner client":              "map[jid:JID tag:salt/run/JID]",
		"runner client, eauth":       "map[jid:JID tag:salt/run/JID]",
		"runner client, wrong token": `TokenAuthenticationError: Authentication failure of type "token" occurred.`,
		"wheel client":               "[web-a]",
		"wheel client, eauth":        "map[minions:[web-a]]",
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}

	salt := func(args ...string) e2e.Result {
		return e2e.Command(t, filepath.Join(bin, "salt"), append([]string{"-c", m.ConfDir}, args...)...)
	}
	if r := salt("--async", "web-a", "test.ping"); r.Code != 0 || !strings.HasPrefix(r.Stdout, "Executed command with job ID: 20") {
		t.Errorf("salt --async: %v", r)
	}
}
