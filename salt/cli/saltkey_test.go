package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/config"
	"clustermaster/serve/operator"
)

const pem = "-----BEGIN PUBLIC KEY-----\nAAAA\nBBBB\n-----END PUBLIC KEY-----"

func someKeys() *fakeDaemon {
	return &fakeDaemon{
		keys: []operator.Key{{ID: "new1", State: pending, Pub: pem},
			{ID: "new2", State: pending, Pub: pem + "\n"}, {ID: "bad", State: rejected, Pub: pem},
			{ID: "web-a", State: accepted, Pub: strings.ReplaceAll(pem, "\n", "\r\n")},
			{ID: "web-b", State: accepted, Pub: pem}, {ID: "web-b", State: denied, Pub: pem}},
		local: map[string]string{"m1.pub": pem},
	}
}

func TestSaltKeyLists(t *testing.T) {
	t.Parallel()
	all := "Accepted Keys:\nweb-a\nweb-b\nDenied Keys:\nweb-b\nUnaccepted Keys:\nnew1\nnew2\nRejected Keys:\nbad\n"
	for _, words := range [][]string{{"-L"}, {}, {"stray"}, {"-y"}, {"-l", "all"},
		{"-L", "-a", "new1"}, {"-q", "-L"}} {
		d := someKeys()
		run(t, SaltKey, d, "", words...).check(t, 0, all, "")
		if len(d.changes) > 0 {
			t.Errorf("salt-key %q changed keys", words)
		}
	}
	for word, want := range map[string]string{"pre": "Unaccepted Keys:\nnew1\nnew2\n",
		"un": "Unaccepted Keys:\nnew1\nnew2\n", "acc": "Accepted Keys:\nweb-a\nweb-b\n",
		"rejected": "Rejected Keys:\nbad\n", "den": "Denied Keys:\nweb-b\n"} {
		run(t, SaltKey, someKeys(), "", "-l", word).check(t, 0, want, "")
	}
	run(t, SaltKey, &fakeDaemon{}, "", "-L", "--out=json").check(t, 0,
		"{\n    \"minions_pre\": [],\n    \"minions_rejected\": [],\n    \"minions\": [],\n    \"minions_denied\": []\n}\n", "")
	run(t, SaltKey, &fakeDaemon{keys: []operator.Key{{ID: "web-a", State: pending}}}, "", "-L",
		"--out=yaml").check(t, 0,
		"minions: []\nminions_denied: []\nminions_pre:\n- web-a\nminions_rejected: []\n", "")
	old := someKeys()
	old.note = "shows what it knew last: no quorum"
	run(t, SaltKey, old, "", "-l", "acc").check(t, 0, "Accepted Keys:\nweb-a\nweb-b\n",
		"[WARNING ] shows what it knew last: no quorum\n")
	usage := "Usage: salt-key [options]\n\nsalt-key: error: "
	run(t, SaltKey, someKeys(), "", "-l", "bogus").check(t, 64, "",
		usage+"'bogus' is not a valid argument to '--list'\n")
	run(t, SaltKey, someKeys(), "", "--keysize", "5").check(t, 64, "",
		usage+"The minimum value for keysize is 2048\n")
}

func TestSaltKeyShowsKeys(t *testing.T) {
	t.Parallel()
	// As minions print it: SHA-256 of the body, whatever the line ends.
	r := run(t, SaltKey, someKeys(), "", "-f", "new*,web-a")
	lines := strings.Split(r.stdout, "\n")
	if len(lines) != 6 || lines[0] != "Accepted Keys:" || lines[2] != "Unaccepted Keys:" {
		t.Fatalf("-f printed\n%s", r.stdout)
	}
	first := strings.TrimPrefix(lines[1], "web-a:  ")
	if len(first) != 95 || lines[3] != "new1:  "+first || lines[4] != "new2:  "+first {
		t.Errorf("fingerprints differ:\n%s ", r.stdout)
	}
	run(t, SaltKey, someKeys(), "", "-p", "new1").check(t, 0, "Unaccepted Keys:\nnew1:  "+pem+
		"\n", "")
	twice := &fakeDaemon{keys: []operator.Key{{ID: "web-b", State: denied, Pub: "one"},
		{ID: "web-b", State: denied, Pub: "two"}}}
	run(t, SaltKey, twice, "", "-p", "web-b").check(t, 0,
		"Denied Keys:\nweb-b:  one\nweb-b:  two\n", "")
	run(t, SaltKey, twice, "", "-l", "den").check(t, 0, "Denied Keys:\nweb-b\n", "")
	for out, want := range map[string]string{"key": "", "json": "{}\n", "yaml": "{}\n", "raw": "{}\n",
		"nested": ""} {
		run(t, SaltKey, someKeys(), "", "-f", "x", "--out="+out).check(t, 0, want, "")
	}
	run(t, SaltKey, someKeys(), "", "-f", "x").check(t, 0, "", "")
	if r := run(t, SaltKey, someKeys(), "", "-F"); !strings.Contains(r.stdout,
		"Local Keys:\nm1.pub:  "+first) {
		t.Errorf("-F printed\n%s", r.stdout)
	}
}

func TestSaltKeyChanges(t *testing.T) {
	t.Parallel()
	ask := "The following keys are going to be accepted:\nUnaccepted Keys:\nnew1\n"
	tests := []struct {
		name, stdin, words, stdout, change string
	}{
		{"yes", "y\n", "-a new1", ask + "Proceed? [n/Y] Key for minion new1 accepted.\n",
			"accept [{new1 minions_pre }] false false"},
		{"enter", "\n", "-a new1", ask + "Proceed? [n/Y] Key for minion new1 accepted.\n",
			"accept [{new1 minions_pre }] false false"},
		{"no", "n\n", "-a new1", ask + "Proceed? [n/Y] ", ""},
		{"end of input", "", "-a new1", ask + "Proceed? [n/Y] ", ""},
		{"not asked", "", "-a new1 -y", ask + "Key for minion new1 accepted.\n",
			"accept [{new1 minions_pre }] false false"},
		{"enter keeps", "\n", "-d new1", strings.Replace(ask, "accepted", "deleted", 1) +
			"Proceed? [N/y] ", ""},
		{"delete", "Yes\n", "-d new1 --preserve-minions True --rotate-aes-key False",
			strings.Replace(ask, "accepted", "deleted", 1) +
				"Proceed? [N/y] Key for minion new1 deleted.\n",
			"delete [{new1 minions_pre }] true true"},
		{"all pending", "", "-A -y",
			"The following keys are going to be accepted:\nUnaccepted Keys:\nnew1\nnew2\nKey for minion new1 accepted.\nKey for minion new2 accepted.\n",
			"accept [{new1 minions_pre } {new2 minions_pre }] false false"},
		{"with rejected", "", "-a *a* -y --include-all",
			"The following keys are going to be accepted:\nRejected Keys:\nbad\nKey for minion bad accepted.\n", "accept [{bad minions_rejected }] false false"},
		{"reject accepted", "", "-r web-a --include-accepted -y",
			"The following keys are going to be rejected:\nAccepted Keys:\nweb-a\nKey for minion web-a rejected.\n", "reject [{web-a minions }] false false"},
		{"denied", "", "-a web-b --include-denied -y",
			"The following keys are going to be accepted:\nDenied Keys:\nweb-b\nKey for minion web-b accepted.\n", "accept [{web-b minions_denied }] false false"},
		{"none", "", "-a x", "The key glob 'x' does not match any unaccepted keys.\n", ""},
		{"none with", "", "-a x --include-all",
			"The key glob 'x' does not match any unaccepted or rejected keys.\n", ""},
		{"none with both", "", "-r x --include-all --include-denied",
			"The key glob 'x' does not match any unaccepted, accepted or denied keys.\n", ""},
		{"none to delete", "", "-d x",
			"The key glob 'x' does not match any unaccepted keys.\n", ""},
		{"accepted is not pending", "", "-a web-a",
			"The key glob 'web-a' does not match any unaccepted keys.\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := someKeys()
			run(t, SaltKey, d, tt.stdin, strings.Fields(tt.words)...).check(t, 0, tt.stdout, "")
			got := ""
			for _, c := range d.changes {
				got += fmt.Sprint(c.Action, " ", c.Keys, " ", c.PreserveMinions, " ", c.KeepAESKey)
			}
			if got != tt.change {
				t.Errorf("changed %q, want %q", got, tt.change)
			}
		})
	}
}

func TestSaltKeyWithoutMaster(t *testing.T) {
	t.Parallel()
	run(t, SaltKey, nil, "", "-L").check(t, 1, "", "ERROR: "+masterDown+"\n")
	var out, errs strings.Builder
	env := Env{
		Stdin: strings.NewReader("y\n"), Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" },
		Dial:   func(context.Context, string) (Daemon, error) { return nil, operator.ErrNoMaster },
		Offline: func(context.Context, *config.Options) (operator.KeyLists, error) {
			return operator.KeyLists{Keys: someKeys().keys}, nil
		},
		Load: func(string, func(string) string) (*config.Options, []config.Warning, error) {
			return &config.Options{StripColors: true, HashType: "sha256"}, nil, nil
		},
	}
	if code := SaltKey(t.Context(), []string{"-l", "pre"}, env); code != 0 ||
		out.String() != "Unaccepted Keys:\nnew1\nnew2\n" {
		t.Errorf("list: exit %d\n%s", code, out.String())
	}
	if code := SaltKey(t.Context(), []string{"-a", "new1"}, env); code != 1 ||
		!strings.Contains(errs.String(), "Start salt-master") {
		t.Errorf("accept: exit %d, stderr %s", code, errs.String())
	}
}

// blocked is a terminal at which nobody types.
type blocked struct{ end chan struct{} }

func (b blocked) Read([]byte) (int, error) { <-b.end; return 0, io.EOF }

func TestSaltKeyInterrupted(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	defer close(end)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	d := someKeys()
	env := Env{
		Stdin: blocked{end}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
		Dial: func(context.Context, string) (Daemon, error) { return d, nil },
		Load: func(string, func(string) string) (*config.Options, []config.Warning, error) {
			return &config.Options{}, nil, nil
		},
	}
	if code := SaltKey(ctx, []string{"-c", "/", "-a", "new1"}, env); code != 0 ||
		errs.String() != "\nExiting gracefully on Ctrl-c\n" || len(d.changes) > 0 {
		t.Errorf("exit %d, stderr %q, %d changes", code, errs.String(), len(d.changes))
	}
}

func TestGenerateKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := run(t, SaltKey, nil, "", "--gen-keys", "web9", "--gen-keys-dir", dir)
	if r.code != 0 || !strings.HasPrefix(r.stdout, "return:\n    ") ||
		len(r.stdout) != len("return:\n    ")+96 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, name := range []string{"web9.pem", "web9.pub"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if r := run(t, SaltKey, nil, "", "--gen-keys", "web9", "--gen-keys-dir", dir); r.code != 1 {
		t.Errorf("an existing key was overwritten: exit %d", r.code)
	}
	if r := run(t, SaltKey, nil, "", "--gen-keys", "../x", "--gen-keys-dir", dir); r.code != 1 {
		t.Errorf("a path was taken as a name: exit %d", r.code)
	}
}
