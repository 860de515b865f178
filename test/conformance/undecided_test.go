package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/wire"
)

// undecidedOptions have patterns that match for too long. What they forbid stays forbidden; what
// they allow is not allowed.
const undecidedOptions = `enable_clear_commands: True
client_acl_verify: False
autosign_file: DIR/autosign.conf
file_ignore_regex: ['(?=a)(a+)+$']
publisher_acl: {carol: ['.*'], dave: ['(?=y)(y+)+$', test.ping]}
publisher_acl_blacklist: {modules: ['(?=x)(x+)+$']}
`

// TestUndecided: a running master with patterns that can't be decided hides the files and blocks
// the functions that they may mean, grants nothing by them, and continues to serve.
func TestUndecided(t *testing.T) {
	endless := strings.Repeat("a", 64) + "!"
	m := newMaster(t, ours, variant{name: "undecided", options: undecidedOptions,
		files: map[string]string{
			"autosign.conf": "ok-*\n", "srv/" + endless: "secret", "srv/b.txt": "text",
		}})
	m.start(t)
	c := m.signIn(t, "ok-a", 3)
	watch := e2e.StartWatch(t)
	list := fmt.Sprint(c.request(t, "_file_list", pair("saltenv", "base")))
	if !strings.Contains(list, "b.txt") || strings.Contains(list, "aaaa") {
		t.Errorf("files: %s", list)
	}
	for path, want := range map[string]bool{endless: false, "b.txt": true} {
		found := fmt.Sprint(c.request(t, "_file_hash", pair("saltenv", "base"), pair("path", path)))
		data := fmt.Sprint(c.request(t, "_serve_file", pair("saltenv", "base"), pair("path", path),
			pair("loc", 0)))
		if strings.Contains(found, "hsum") != want || strings.Contains(data, "secret") ||
			strings.Contains(data, "text") != want {
			t.Errorf("%.10s: %s, %s", path, found, data)
		}
	}
	for _, user := range []string{"carol", "dave"} {
		e2e.Eventually(t, 20*time.Second, user+" has a key", func() error { return m.hasKey(user) })
	}
	for _, o := range []struct {
		user, fun string
		published bool
	}{
		{"carol", "test.ping", true}, {"carol", strings.Repeat("x", 64) + "!", false},
		{"dave", "test.ping", true}, {"dave", strings.Repeat("y", 64) + "!", false},
	} {
		reply := unpack(t, m.clear(t, 3,
			m.filled(t, jobOf("user", o.user, "key", "KEY:"+o.user, "tgt", "ok-a", "fun", o.fun))))
		if got := showValue(reply); strings.Contains(got, "jid") != o.published ||
			strings.Contains(got, "error") == o.published {
			t.Errorf("%s %.10s: %s", o.user, o.fun, got)
		}
	}
	if took := watch.Took(); took > e2e.Within(30*time.Second) {
		t.Errorf("all that took %v", took)
	}
}

// TestNoDecryptionOracle: a running master decrypts its own pillar for a minion, and nothing that
// the minion sends along.
func TestNoDecryptionOracle(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Fatal("gpg is needed: apt install gnupg")
	}
	// the test's own folder is too long for the agent's socket
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		exec.Command("gpgconf", "--homedir", home, "--kill",
			"all").Run() // it may be gone
		os.RemoveAll(home)
	})
	gpg := func(in string, args ...string) string {
		cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--yes",
			"--trust-model", "always"}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	gpg("", "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key",
		"salt@example.net", "future-default", "default", "never")
	own := gpg("s3cret", "--armor", "--encrypt", "-r", "salt@example.net")
	stolen := gpg("an0ther", "--armor", "--encrypt", "-r", "salt@example.net")
	indented := strings.ReplaceAll(strings.TrimSpace(own), "\n", "\n  ")
	m := newMaster(t, ours, variant{name: "oracle", options: `autosign_file: DIR/autosign.conf
gpg_keydir: ` + home + `
decrypt_pillar: [{own: gpg}, {stolen: gpg}, {deep: gpg}]
ext_pillar: [{gpg: {}}]
`, files: map[string]string{
		"autosign.conf": "ok-*\n", "pillar/top.sls": "base: {'*': [a]}\n",
		"pillar/a.sls": "own: |\n  " + indented + "\ndeep: {a: x}\n",
	}})
	m.start(t)
	master := m.masterKey(t)
	c := m.signIn(t, "ok-thief", 3)
	for _, field := range []string{"pillar_override", "extra_minion_data"} {
		load := c.pillarLoad(t).Set(field, dict("stolen", stolen, "deep", dict("stolen", stolen)))
		v, err := wire.OpenPrivate(c.Key, master, c.sender(), m.send(t, c.seal(t, load)), "pillar",
			load.String("nonce"))
		if err != nil {
			t.Fatal(err)
		}
		got := showRaw(v)
		if !strings.Contains(got, "s3cret") || strings.Contains(got, "an0ther") {
			t.Errorf("%s: %s", field, got)
		}
		if field == "pillar_override" && !strings.Contains(got, "BEGIN PGP MESSAGE") {
			t.Errorf("the override is not in the pillar: %s", got)
		}
	}
}
