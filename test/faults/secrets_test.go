package faults

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/cluster/backup"
	"clustermaster/test/e2e"
	"clustermaster/transport/peer"
	"clustermaster/value"
	"clustermaster/wire"
)

// secrets must never be shown: by name, with the texts that would reveal each.
type secrets map[string][]string

// bytes adds a secret of bytes in the forms in which a careless line could reveal it.
func (s secrets) bytes(name string, b []byte) {
	if len(b) < 8 {
		return // too short: it would be found by chance
	}
	s[name] = append(s[name], string(b), hex.EncodeToString(b),
		strings.ToUpper(hex.EncodeToString(b)), strings.Trim(fmt.Sprint(b), "[]"),
		strings.Trim(strconv.Quote(string(b)),
			`"`), strings.Trim(strconv.QuoteToASCII(string(b)), `"`))
	for skip := range 3 { // wherever it begins inside a base64 text
		part := b[skip : len(b)-(len(b)-skip)%3]
		s[name] = append(s[name], base64.StdEncoding.EncodeToString(part),
			base64.URLEncoding.EncodeToString(part))
	}
}

// text adds a secret that is text.
func (s secrets) text(name, text string) { s.bytes(name, []byte(text)) }

// pem adds a private key: its bytes, and each line of its text.
func (s secrets) pem(t testing.TB, name string, text []byte) {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil || !strings.Contains(block.Type, "PRIVATE KEY") {
		t.Fatalf("%s is no private key: %s", name, text)
	}
	s.bytes(name, block.Bytes)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); len(line) >= 40 && !strings.HasPrefix(line, "-----") {
			s[name] = append(s[name], line)
		}
	}
}

// found names the secrets that a text contains.
func (s secrets) found(text string) (names []string) {
	for name, forms := range s {
		if slices.ContainsFunc(forms, func(f string) bool { return strings.Contains(text, f) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// used is a cluster whose whole life is recorded: the output of commands, all events, the answers
// of its ports.
type used struct {
	*cluster
	t      *testing.T
	secret secrets
	told   map[string]string // recorded texts by source
}

// run runs a runner function, with a text on stdin, and keeps its output.
func (u *used) run(m *e2e.Master, stdin string, args ...string) string {
	u.t.Helper()
	cmd := exec.Command(e2e.Ours(u.t).Run,
		append([]string{"-c", m.ConfDir, "--out=json"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Errorf("%v: %v\n%s", args, err, out)
	}
	u.keep(strings.Join(args, " "), string(out))
	return string(out)
}

func (u *used) keep(who, text string) { u.told[who] += text }

// save writes a backup, and adds the secrets in it.
func (u *used) save(m *e2e.Master, name string, passphrase string, args ...string) {
	u.t.Helper()
	file := filepath.Join(u.Dir, name)
	u.run(m, passphrase+"\n", append([]string{"cluster.backup", file, "jobs=True"}, args...)...)
	f, err := os.Open(file)
	if err != nil {
		u.t.Fatal(err)
	}
	defer f.Close()
	r, err := backup.NewReader(f, passphrase)
	if err != nil {
		u.t.Fatal(err)
	}
	u.secret.pem(u.t, "cluster key", []byte(r.State.ClusterKey))
	aes, err := base64.StdEncoding.DecodeString(r.State.AES)
	if err != nil {
		u.t.Fatal(err)
	}
	u.secret.bytes("AES key of "+name, aes)
	u.secret.text("AES key of "+name, r.State.AES)
	u.secret.bytes("session secret of "+name, r.State.Session)
}

// signIn has a minion sign in, and adds the keys that it gets.
func (u *used) signIn(m *minion, at *e2e.Master) {
	u.t.Helper()
	if word, err := m.signIn(within(u.t, 10*time.Second), at); err != nil || word != "accepted" {
		u.t.Fatalf("%s signs in at %s: %s, %v", m.id, at.ID, word, err)
	}
	u.secret.bytes("AES key of minions", m.answer.AES[:])
	u.secret.bytes("session key of "+m.id, m.answer.Session[:])
}

// asks has a minion ask for its options and its pillar. With pillar_opts the pillar contains the
// master's options.
func (u *used) asks(m *minion, at *e2e.Master) {
	u.t.Helper()
	raw, err := m.ask(within(u.t, 30*time.Second), at,
		value.Map{{Key: "cmd", Value: "_master_opts"}})
	if err != nil {
		u.t.Fatal(err)
	}
	u.keep("_master_opts", string(raw))
	nonce, err := wire.NewNonce()
	if err != nil {
		u.t.Fatal(err)
	}
	packed, err := m.sender.SealRequest(wire.NewCrypticle(m.answer.Session), value.Map{
		{Key: "cmd", Value: "_pillar"}, {Key: "id", Value: m.id},
		{Key: "grains", Value: value.Map{}}, {Key: "saltenv", Value: "base"},
		{Key: "pillarenv", Value: nil},
		{Key: "pillar_override", Value: value.Map{}}, {Key: "ver", Value: "2"},
	}, nonce, time.Now())
	if err != nil {
		u.t.Fatal(err)
	}
	// The first one waits for the master to unpack Python.
	reply, err := send(within(u.t, e2e.Within(30*time.Second)), hostPort(at, e2e.RequestPort), packed)
	if err == nil {
		raw, err = wire.OpenPrivate(m.key, m.answer.Master, m.sender, reply, "pillar", nonce)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	if !bytes.Contains(raw, []byte("cluster_secret")) {
		u.t.Error("the pillar has no options of the master, so it proves nothing")
	}
	u.keep("_pillar", string(raw))
}

// metrics keeps the answer of the metrics port.
func (u *used) metrics(m *e2e.Master) {
	u.t.Helper()
	text := m.Metrics(u.t)
	if !strings.Contains(text, "clustermaster_") {
		u.t.Fatal(text)
	}
	u.keep("metrics of "+m.ID, text)
}

// externalAuth has one user.
const externalAuth = "\nexternal_auth: {sharedsecret: {carol: ['.*', '@runner', '@wheel']}}\n"

// logsIn has a user of external_auth give orders with a password, a wrong password and a token, and
// adds the tokens.
func (u *used) logsIn(a, b *e2e.Master, password, guess string) {
	u.t.Helper()
	home := filepath.Join(u.Dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		u.t.Fatal(err)
	}
	command := func(program string, m *e2e.Master, args ...string) {
		u.t.Helper()
		cmd := exec.Command(program, append([]string{"-c", m.ConfDir}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home)
		out, _ := cmd.CombinedOutput() // refusals end as Salt's do
		u.keep("orders of carol", string(out))
	}
	ours := e2e.Ours(u.t)
	for _, word := range []string{guess, password} {
		who := []string{"--eauth", "sharedsecret", "--username", "carol", "--password", word}
		command(ours.Salt, a, append(who, "--async", "*", "test.ping")...)
		command(ours.Run, b, append(who, "test.arg", "carols")...)
		command(ours.Key, a, append(who, "-L")...)
		command(ours.Salt, a, append(who, "-T", "--async", "*", "test.ping")...)
	}
	saved, err := os.ReadFile(filepath.Join(home, "salt_token"))
	if err != nil || len(saved) != 64 || !strings.Contains(u.told["orders of carol"], "carols") {
		u.t.Fatalf("token %q, %v: %s", saved, err, u.told["orders of carol"])
	}
	u.secret.text("saved token", string(saved))
	u.run(a, "", "auth.mk_token", "username=carol", "password="+guess, "eauth=sharedsecret")
	made := u.run(a, "", "auth.mk_token", "username=carol", "password="+password,
		"eauth=sharedsecret")
	_, token, _ := strings.Cut(made, `"token": "`)
	if token, _, _ = strings.Cut(token, `"`); len(token) != 64 {
		u.t.Fatalf("no token in %s", made)
	}
	u.secret.text("made token", token)
	if out := u.run(b, "", "auth.del_token", token); strings.TrimSpace(out) != "true" {
		u.t.Errorf("delete a token: %s", out)
	}
	for who := range u.told { // shown to the user who ordered it
		if strings.HasPrefix(who, "auth.mk_token") {
			delete(u.told, who)
		}
	}
}

// TestSecretsAreToldToNobody searches for the value of every secret of a cluster in everything that
// the cluster outputs in a long day at the highest log level: logs, events, metrics, stored jobs,
// output of commands, and answers to minions. Then every file that it wrote must be its own.
func TestSecretsAreToldToNobody(t *testing.T) {
	t.Parallel()
	shared, guess := "shared "+rand.Text(), "guess "+rand.Text()
	u := &used{cluster: prepareCluster(t, 3,
		"pillar_opts: True\ncluster_isolated_filesystem: True\nsharedsecret: "+shared+externalAuth),
		t: t, secret: secrets{}, told: map[string]string{}}
	u.secret.text("sharedsecret", shared)
	u.secret.text("guessed password", guess)
	loud := strings.NewReplacer("log_level: error", "log_level: all", "log_level_logfile: debug",
		"log_level_logfile: all")
	for _, m := range u.Masters {
		m.Configure(t, loud.Replace(m.Config(t)))
	}
	// a template, so that the renderer's files exist too
	for name, text := range map[string]string{
		"pillar/top.sls":  "base:\n  '*': [site]\n",
		"pillar/site.sls": "site: {{ [1, 2] | length }}\n", "srv/top.sls": "base: {}\n",
	} {
		if err := os.WriteFile(filepath.Join(u.Masters[0].Dir, name), []byte(text),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	// what the masters create must not depend on the caller's umask; masters of other tests may get
	// it too
	wide := syscall.Umask(0)
	u.StartMasters(t)
	syscall.Umask(wide)
	a, b := u.Masters[0], u.Masters[1]
	u.secret.text("cluster_secret", u.Secret)
	u.secret.bytes("join key", peer.JoinKey(u.Secret, "e2e"))

	events := &e2e.Process{Name: "state.event", Output: filepath.Join(u.Dir, "events")}
	events.Start(t, e2e.Ours(t).Run, "-c", b.ConfDir, "state.event")
	e2e.Eventually(t, healed, "events are recorded", func() error {
		u.run(a, "", "event.send", "begin", "{x: 1}")
		if text, err := os.ReadFile(events.Output); err != nil ||
			!bytes.Contains(text, []byte("begin")) {
			return fmt.Errorf("no event yet: %w", err)
		}
		return nil
	})

	web, db := accepted(t, a, "web"), accepted(t, b, "db")
	for _, m := range u.Masters {
		u.signIn(web, m)
		u.signIn(db, m)
		u.asks(web, m)
	}
	u.run(a, "", "cluster.sync_roots")
	u.asks(web, b)
	u.logsIn(a, b, shared, guess)
	phrase := "typed " + rand.Text()
	u.secret.text("typed passphrase", phrase)
	u.save(a, "first.backup", phrase)
	given := "given " + rand.Text()
	u.secret.text("given passphrase", given)
	u.save(b, "second.backup", given, "passphrase="+given)
	filed := "filed " + rand.Text()
	u.secret.text("passphrase in a file", filed)
	file := filepath.Join(u.Dir, "passphrase")
	if err := os.WriteFile(file, []byte(filed), 0o600); err != nil {
		t.Fatal(err)
	}
	u.run(a, "", "cluster.rotate_keys")
	succeeds(t, b.Key(t, "-d", "db", "-y"))
	u.save(b, "third.backup", filed, "passphrase_file="+file)
	u.run(a, "", "cluster.restore", filepath.Join(u.Dir, "third.backup"), "passphrase="+filed,
		"test=True")
	u.run(b, filed+"\n", "cluster.restore", filepath.Join(u.Dir, "third.backup"), "jobs=True")
	u.signIn(web, a)
	u.asks(web, b)

	// The new secret is shown once, to the user who ordered it.
	out := u.run(a, "", "cluster.rotate_secret")
	_, next, _ := strings.Cut(out, `"cluster_secret": "`)
	if next, _, _ = strings.Cut(next, `"`); len(next) < 32 {
		t.Fatalf("no new secret in %s", out)
	}
	delete(u.told, "cluster.rotate_secret")
	u.secret.text("rotated cluster_secret", next)
	u.secret.bytes("rotated join key", peer.JoinKey(next, "e2e"))
	wrong := "a-wrong-secret-" + rand.Text()
	u.secret.text("wrong cluster_secret", wrong)
	joiner := u.joiner(t, func(text string) string {
		return strings.Replace(loud.Replace(text),
			u.Secret, wrong, 1)
	})
	turnedAway(t, a, joiner.Addr, func() { joiner.Run(t) }, "join_proof")
	joiner.Kill(t)
	joiner.Configure(t, strings.Replace(joiner.Config(t), wrong, next, 1))
	joiner.Run(t)
	e2e.Eventually(t, healed, "it joins with the rotated secret", joiner.Ready)

	for _, fun := range []string{"cluster.members", "cluster.ring_info", "cluster.roots_status",
		"jobs.list_jobs", "jobs.active",
		"manage.status", "-d"} {
		u.run(b, "", fun)
	}
	// ends with 1 while something heals
	u.keep("cluster.health", b.Runner(t, "cluster.health").String())
	for _, m := range u.Masters {
		u.metrics(m)
		for _, flag := range []string{"-L", "-F", "-P"} {
			u.keep("salt-key", m.Key(t, flag, "--out=json").String())
		}
		u.keep("salt", m.Salt(t, "--async", "*", "test.ping").String())
		key, err := os.ReadFile(filepath.Join(m.Dir, "cache", "clustermaster", "node.key"))
		if err != nil {
			t.Fatal(err)
		}
		u.secret.pem(t, "node key of "+m.ID, key)
	}
	var jobs map[string]any
	if err := b.RunnerJSON(t, &jobs, "jobs.list_jobs"); err != nil || len(jobs) < 10 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	for jid := range jobs {
		u.run(b, "", "jobs.print_job", jid)
	}

	text, err := os.ReadFile(events.Output)
	if err != nil || !bytes.Contains(text, []byte("cluster.rotate_secret")) ||
		!bytes.Contains(text, []byte("cluster.backup")) {
		t.Errorf("the events of the orders weren't recorded: %v", err)
	}
	u.keep("events", string(text))
	for _, m := range u.Masters {
		for _, name := range []string{m.Log, m.Output, fmt.Sprintf("/proc/%d/cmdline", m.PID())} {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
			}
			u.keep(name, string(text))
		}
		if !strings.Contains(u.told[m.Log], "[TRACE") &&
			!strings.Contains(u.told[m.Log], "[DEBUG") {
			t.Errorf("%s isn't loud", m.ID)
		}
	}
	for who, text := range u.told {
		if names := u.secret.found(text); len(names) > 0 {
			t.Errorf("%s tells %v", who, names)
		}
	}
	u.kept()
	for _, m := range u.Masters {
		ownFilesAlone(t, m)
	}
}

// kept expects the disks to contain the secrets searched for. A search for wrong values would find
// nothing anywhere.
func (u *used) kept() {
	u.t.Helper()
	kept := map[string]bool{}
	for _, m := range u.Masters {
		err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return stays(err)
			case path == embedded(m):
				return fs.SkipDir
			case !d.Type().IsRegular() || path == m.Log || path == m.Output:
				return nil
			}
			b, err := os.ReadFile(path)
			for _, name := range u.secret.found(string(b)) {
				kept[name] = true
			}
			return stays(err)
		})
		if err != nil {
			u.t.Error(err)
		}
	}
	for _, name := range []string{"saved token", "made token", "guessed password"} {
		if kept[name] {
			u.t.Errorf("the %s is on a disk", name)
		}
	}
	for _, name := range []string{"cluster key", "AES key of first.backup",
		"session secret of first.backup", "AES key of third.backup", "AES key of minions",
		"cluster_secret", "join key", "rotated join key", "node key of master1"} {
		if !kept[name] {
			u.t.Errorf("no disk has the %s, so the search for it was in vain", name)
		}
	}
}

// stays forgives what a running master removed between the listing of a folder and the look at it.
func stays(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// embedded is the folder of Python, as it is in the program.
func embedded(m *e2e.Master) string {
	return filepath.Join(m.Dir, "cache", "clustermaster",
		"render")
}

// ownFilesAlone expects everything a master wrote to be accessible to its user alone. Its log has
// mode 0640, as Salt's.
func ownFilesAlone(t *testing.T, m *e2e.Master) {
	t.Helper()
	others := map[string]bool{ // not the master's, or nothing of its state
		m.ConfDir: true, m.Output: true, filepath.Join(m.Dir, "srv"): true,
		filepath.Join(m.Dir, "pillar"): true,
		m.Log:                          true, filepath.Join(m.Dir, "master.pid"): true,
		embedded(m):                             true,
		filepath.Join(m.Dir, "cache", "health"): true, // times, for supervisors
	}
	n := 0
	err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return stays(err)
		case others[path] && d.IsDir():
			return fs.SkipDir
		case others[path] || !d.Type().IsRegular():
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return stays(err)
		}
		n++
		if st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, st.Mode())
		}
		return nil
	})
	if err != nil || n < 20 {
		t.Errorf("%s: %d files, %v", m.ID, n, err)
	}
}
