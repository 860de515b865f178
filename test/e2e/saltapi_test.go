package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/test/sshtest"
)

// saltAPIPort is where the salt-api of a test listens.
const saltAPIPort = 8000

// saltAPIExtra are a master's options for a salt-api of Salt's beside it.
const saltAPIExtra = `auto_accept: True
enable_clear_commands: True
external_auth: {auto: {alice: ['test.*', '@runner', '@wheel']}}
netapi_enable_clients: [local, local_async, runner, runner_async, wheel, ssh]
ssh_priv: %s
reactor:
  - 'salt/netapi/hook/*': [%s/hook.sls]
rest_cherrypy: {host: %s, port: 8000, disable_ssl: True, webhook_disable_auth: True,
  debug: True} # its answers name the error
`

// saltAPIRoster is a target of salt-ssh: its address, port, user, file of known hosts, folder of
// a Python, and folder for Salt.
const saltAPIRoster = "box: {host: %s, port: %d, user: %s, ssh_options: ['UserKnownHostsFile=%s'], " +
	"set_path: '%s:$PATH', thin_dir: %s}\n"

// saltAPI is the real salt-api of one release beside a master.
type saltAPI struct {
	Process
	master     *Master
	release    string
	url, token string
}

// startSaltAPI runs salt-api with the master's own configuration and logs in.
func startSaltAPI(t *testing.T, m *Master, release string) *saltAPI {
	t.Helper()
	a := &saltAPI{
		Process: Process{Name: "salt-api of " + m.ID,
			Output: filepath.Join(m.Dir, "api-"+release+".log")},
		master: m, release: release, url: fmt.Sprintf("http://%s:%d", m.Addr, saltAPIPort),
	}
	ShowOnFailure(t, a.Output)
	bin := filepath.Dir(Theirs(t, release).Master)
	a.Start(t, filepath.Join(bin, "salt-api"), "-c", m.ConfDir, "-l", "warning", "--pid-file",
		filepath.Join(m.Dir, "api.pid"))
	Eventually(t, 180*time.Second, "a login at the salt-api of "+m.ID,
		func() error { return a.login() })
	return a
}

// login asks for a session. Its token is valid for this salt-api only.
func (a *saltAPI) login() error {
	var answer struct {
		Return []struct {
			Token string
			Perms []any
		}
	}
	if err := a.post("/login", map[string]string{"username": "alice", "password": "any",
		"eauth": "auto"}, &answer); err != nil {
		return err
	}
	if len(answer.Return) != 1 || len(answer.Return[0].Perms) != 3 {
		return fmt.Errorf("login: %+v", answer)
	}
	a.token = answer.Return[0].Token
	return nil
}

// post sends v as JSON and reads the answer into to.
func (a *saltAPI) post(path string, v, to any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("X-Auth-Token", a.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, b[max(0, len(b)-1500):]) // the cause comes last
	}
	return json.Unmarshal(b, to)
}

// call runs one low data and returns the answer as compact JSON.
func (a *saltAPI) call(low map[string]any) (string, error) {
	var answer struct{ Return []json.RawMessage }
	if err := a.post("/", low, &answer); err != nil {
		return "", err
	}
	if len(answer.Return) != 1 {
		return "", fmt.Errorf("%d returns", len(answer.Return))
	}
	return string(answer.Return[0]), nil
}

// events follows the stream of server-sent events and returns its lines. The channel closes when
// the stream ends.
func (a *saltAPI) events(t *testing.T) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", a.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("events: %s", resp.Status)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			lines <- sc.Text()
		}
	}()
	return lines
}

// TestSaltAPI runs Salt's own salt-api of each release beside the three masters of a cluster:
// logins, calls of every client, the stream of events, a web hook and pepper. One master dies
// meanwhile.
func TestSaltAPI(t *testing.T) {
	long(t)
	Pepper(t)
	t.Parallel()
	for _, release := range Releases {
		t.Run(release, func(t *testing.T) { saltAPIOf(t, release) })
	}
}

func saltAPIOf(t *testing.T, release string) {
	c := NewCluster(t, ClusterOptions{})
	server := sshtest.Start(t, c.Base.Master(90))
	key := server.Accepts(t, "key", "")
	known := server.Known(t, "known", filepath.Join(server.Dir, "host"))
	for _, m := range c.Masters {
		m.Configure(t, m.Config(t)+fmt.Sprintf(saltAPIExtra, key, m.Dir, m.Addr))
		roster := fmt.Sprintf(saltAPIRoster, server.Addr, server.Port, server.User, known,
			filepath.Dir(Theirs(t, release).Master), filepath.Join(m.Dir, "thin"))
		if err := os.WriteFile(filepath.Join(m.ConfDir, "roster"), []byte(roster), 0o600); err != nil {
			t.Fatal(err)
		}
		sls := "seen:\n  runner.event.send:\n    - args:\n      - tag: hook/seen\n      - data: {where: " + m.ID + ", what: '{{ data.post.build }}'}\n"
		if err := os.WriteFile(filepath.Join(m.Dir, "hook.sls"), []byte(sls), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.Start(t)
	minion := c.AddMinions(t, "api", "", release)[0].ID
	Eventually(t, 60*time.Second, "the minion answers", func() error {
		ids, r := c.Masters[0].Ping(t)
		if len(ids) != 1 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	var list []*saltAPI
	for _, m := range c.Masters {
		list = append(list, startSaltAPI(t, m, release))
	}
	one, two, three := list[0], list[1], list[2]
	for i, a := range list {
		a.calls(t, minion)
		a.pepper(t, minion)
		next := list[(i+1)%len(list)]
		a.hook(t, next.events(t), c.Masters[i].ID)
		a.makeTokens(t, next)
		a.makeKeys(t, next.master)
	}
	one.ssh(t)
	stream := three.events(t)
	pings := two.startPings(minion)
	c.Masters[0].Kill(t)
	pings.last(t)
	two.calls(t, minion)
	two.pepper(t, minion)
	two.hook(t, stream, c.Masters[1].ID)
	three.calls(t, minion)
	three.pepper(t, minion)
	// A salt-api whose master is dead says so, and works again once the master does.
	ping := map[string]any{"client": "local", "tgt": "*", "fun": "test.ping"}
	if got, err := one.call(ping); err == nil {
		t.Errorf("the salt-api of a dead master answers: %s", got)
	}
	c.Masters[0].Run(t)
	c.WaitReady(t, 60*time.Second, c.Masters[0])
	Eventually(t, 30*time.Second, "the first salt-api works again", func() error {
		_, err := one.call(ping)
		return err
	})
	one.calls(t, minion)
	one.pepper(t, minion)
	if release == Releases[0] {
		// It notices only now that the bus on which it fired events has ended, with Salt's master
		// too.
		var answer struct{ Success bool }
		if err := one.post("/hook/again", map[string]string{}, &answer); err == nil {
			t.Log("the first hook after the master's return was fired")
		}
	}
	one.hook(t, stream, c.Masters[0].ID)
}

// apiPings are calls of test.ping, one after the other.
type apiPings struct {
	stop, stopped chan struct{}
	failed        []string     // read once stopped is closed
	good          atomic.Int32 // in a row
}

// startPings calls test.ping through this salt-api until last ends it.
func (a *saltAPI) startPings(minion string) *apiPings {
	p := &apiPings{stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(p.stopped)
		for !closed(p.stop) {
			began := time.Now()
			got, err := a.call(map[string]any{"client": "local", "tgt": minion, "fun": "test.ping"})
			switch {
			case err != nil:
				p.failed = append(p.failed, fmt.Sprintf("%s, sent %s: %v", a.Name,
					began.Format("15:04:05.0"), err))
				p.good.Store(0)
			case strings.Contains(got, `"`+minion+`": true`):
				p.good.Add(1)
			default: // it connects anew
				p.good.Store(0)
			}
		}
	}()
	return p
}

// last waits for three answers of the minion in a row. No call may have failed: while the minion
// connects anew, the answer says that it did not return.
func (p *apiPings) last(t *testing.T) {
	t.Helper()
	p.good.Store(0)
	Eventually(t, 90*time.Second, "the minion answers calls again", func() error {
		if n := p.good.Load(); n < 3 {
			return fmt.Errorf("%d answers in a row", n)
		}
		return nil
	})
	close(p.stop)
	<-p.stopped
	for _, f := range p.failed {
		t.Errorf("a call while a master died: %s", f)
	}
}

// tokenFile makes a token with the master's own command, and a file of it for pepper -T.
func (a *saltAPI) tokenFile(t *testing.T) string {
	t.Helper()
	var token map[string]any
	if err := a.master.RunnerJSON(t, &token, "auth.mk_token", "username=alice", "password=any",
		"eauth=auto"); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	path := a.Output + ".token"
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pepper runs Salt's own client of salt-api: each client, and a job whose returns it polls.
func (a *saltAPI) pepper(t *testing.T, minion string) {
	t.Helper()
	for _, c := range []struct {
		args string
		want []string // texts in the output
	}{
		{"* test.ping", []string{`"` + minion + `"`, `"ret": true`}},
		{"-G e2e:* test.arg 1 a=b", []string{`"a": "b"`}},
		{"--fail-if-incomplete * test.ping", []string{`"` + minion + `"`}},
		{"--client runner manage.up", []string{minion}},
		{"--client wheel key.list_all", []string{`"success": true`, minion}},
		{"-r -T -x " + a.tokenFile(t) + " * test.ping", []string{`"` + minion + `"`,
			`"ret": true`}}, // /run
		{"-r * test.ping", []string{`"` + minion + `"`, `"ret": true`}}, // /token, /run
	} {
		args := append([]string{"-c", os.DevNull, "-u", a.url, "-a", "auto", "--username", "alice",
			"--password", "any", "--non-interactive"}, strings.Fields(c.args)...)
		r := Command(t, Pepper(t), args...)
		if r.Code != 0 {
			t.Errorf("%s: %v", a.Name, r)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(r.Stdout, w) {
				t.Errorf("%s: no %s in %v", a.Name, w, r)
			}
		}
	}
	if r := Command(t, Pepper(t), "-c", os.DevNull, "-u", a.url, "-a", "auto", "--username", "bob",
		"--password", "any", "--non-interactive", "*", "test.ping"); r.Code == 0 ||
		strings.Contains(r.Stdout, "true") {
		t.Errorf("%s: bob, who has no rights, may order: %v", a.Name, r)
	}
}

// calls tries each client of salt-api once.
func (a *saltAPI) calls(t *testing.T, minion string) {
	t.Helper()
	for _, c := range []struct {
		low  map[string]any
		want []string // texts in the answer
	}{
		{map[string]any{"client": "local", "tgt": "*", "fun": "test.ping"},
			[]string{`"` + minion + `": true`}},
		{map[string]any{"client": "local", "tgt": "*", "fun": "test.arg", "arg": []any{1},
			"kwarg": map[string]any{"a": "b"}}, []string{`"args": [1]`, `"a": "b"`}},
		{map[string]any{"client": "local_async", "tgt": "*", "fun": "test.ping"},
			[]string{`"jid"`, minion}},
		{map[string]any{"client": "runner", "fun": "manage.up"}, []string{minion}},
		{map[string]any{"client": "runner_async", "fun": "test.arg"}, []string{"salt/run/"}},
		{map[string]any{"client": "wheel", "fun": "key.list_all"},
			[]string{`"success": true`, minion}},
		{map[string]any{"client": "wheel", "fun": "minions.connected"},
			[]string{`"return": ["` + minion + `"]`}},
		{map[string]any{"client": "wheel", "fun": "config.values"},
			[]string{`"cluster_secret": "[redacted]"`, `"cluster_id": "e2e"`, `"timeout": 5`}},
	} {
		got, err := a.call(c.low)
		if err != nil {
			t.Errorf("%s: %v: %v", a.Name, c.low, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %v: no %s in %.500s", a.Name, c.low, w, got)
			}
		}
	}
	if got, err := a.call(map[string]any{"client": "local", "tgt": "*", "fun": "cmd.run",
		"arg": []any{"id"}}); err == nil {
		t.Errorf("%s: alice may run cmd.run: %s", a.Name, got)
	}
}

// ownKeyGone ends an error of salt-api itself: it makes its key file anew for each request, and of
// two at the same time one may not find it.
const ownKeyGone = "/cache/saltapi/.root_key'\\n"

// makeTokens makes tokens with /token. They are good at another salt-api, and no stream of events
// has them: salt-api takes the answer from the same bus.
func (a *saltAPI) makeTokens(t *testing.T, other *saltAPI) {
	t.Helper()
	streams := []<-chan string{a.events(t), other.events(t)}
	order := map[string]any{"client": "runner", "fun": "test.arg", "kwarg": map[string]any{}}
	const calls = 4 // at the same time
	made := make([]string, calls)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			var answer []struct{ Token, Name, Eauth string }
			var err error
			for range 20 {
				err = a.post("/token", map[string]string{"username": "alice", "password": "any",
					"eauth": "auto"}, &answer)
				if err == nil || !strings.Contains(err.Error(), ownKeyGone) {
					break
				}
			}
			if err != nil || len(answer) != 1 || len(answer[0].Token) != 64 ||
				answer[0].Name != "alice" || answer[0].Eauth != "auto" {
				t.Errorf("%s: /token: %+v, %v", a.Name, answer, err)
				return
			}
			made[i] = answer[0].Token
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for _, token := range made {
		order["token"] = token
		var answer struct{ Return []json.RawMessage }
		if err := other.post("/run", order, &answer); err != nil || len(answer.Return) != 1 {
			t.Errorf("%s: /run with a token of %s: %s, %v", other.Name, a.Name, answer.Return, err)
		}
	}
	for i, stream := range streams {
		hidden := 0
		for limit := time.After(30 * time.Second); hidden < calls; {
			select {
			case line, ok := <-stream:
				if !ok {
					t.Fatal("the stream of events ended")
				}
				for _, token := range made {
					if strings.Contains(line, token) {
						t.Errorf("%s: a token of %s is in its stream: %s", []string{a.Name, other.Name}[i],
							a.Name, line)
					}
				}
				if strings.Contains(line, "auth.mk_token") && strings.Contains(line, `"success": true`) {
					hidden++
				}
			case <-limit:
				t.Fatalf("%d of %d events of auth.mk_token in 30 s", hidden, calls)
			}
		}
	}
}

// makeKeys makes keys of a minion with POST /keys, which answers with an archive.
func (a *saltAPI) makeKeys(t *testing.T, other *Master) {
	t.Helper()
	id := "made-" + a.master.ID
	made := func(more string) map[string]string {
		t.Helper()
		resp, err := http.Post(a.url+"/keys", "application/x-www-form-urlencoded",
			strings.NewReader("mid="+id+"&username=alice&password=any&eauth=auto"+more))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		files := map[string]string{}
		for archive := tar.NewReader(resp.Body); ; {
			h, err := archive.Next()
			if err == io.EOF {
				return files
			}
			if err != nil {
				t.Fatalf("%s: /keys: %s, %v", a.Name, resp.Status, err)
			}
			b, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			files[h.Name] = string(b)
		}
	}
	check := func(files map[string]string, bits int) {
		t.Helper()
		block, _ := pem.Decode([]byte(files["minion.pem"]))
		if block == nil {
			t.Fatalf("%s: /keys: %q", a.Name, files)
		}
		private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
		if err != nil || private.N.BitLen() != bits {
			t.Fatalf("%s: /keys with %d bits: %v", a.Name, bits, err)
		}
		public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
		if text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})); err != nil ||
			text != files["minion.pub"] {
			t.Errorf("%s: /keys: the public key is another one: %q, %v", a.Name, files["minion.pub"], err)
		}
		if r := other.Key(t, "-p", id, "--out=json"); !strings.Contains(r.Stdout,
			strings.ReplaceAll(strings.TrimSpace(files["minion.pub"]), "\n", `\n`)) ||
			!strings.Contains(r.Stdout, `"minions"`) {
			t.Errorf("%s does not have the accepted key of %s: %v", other.ID, id, r)
		}
	}
	first := made("&keysize=3072")
	check(first, 3072)
	if again := made(""); again["minion.pem"] != "" || again["minion.pub"] != "" || len(again) != 2 {
		t.Errorf("%s: /keys of a known id: %q", a.Name, again)
	}
	forced := made("&force=True")
	check(forced, 2048)
	if forced["minion.pub"] == first["minion.pub"] {
		t.Errorf("%s: the key of %s is not replaced", a.Name, id)
	}
	// Nobody answers jobs with that key.
	if r := other.Key(t, "-d", id, "-y"); r.Code != 0 {
		t.Errorf("%s: %v", other.ID, r)
	}
}

// ssh calls a target of salt-ssh, which runs in salt-api's process. It takes credentials; tokens
// are the masters'.
func (a *saltAPI) ssh(t *testing.T) {
	t.Helper()
	// On a busy machine this could take longer than an answer may.
	python := filepath.Join(filepath.Dir(Theirs(t, a.release).Master), "python3")
	if r := Command(t, python, "-c", "import sys, salt.utils.thin; salt.utils.thin.gen_thin(sys.argv[1])",
		filepath.Join(a.master.Dir, "cache")); r.Code != 0 {
		t.Fatalf("gen_thin: %v", r)
	}
	low := map[string]any{"client": "ssh", "tgt": "box*", "fun": "test.arg", "arg": []any{"one"},
		"username": "alice", "password": "any", "eauth": "auto"}
	run := func(fun string) (string, error) {
		low["fun"] = fun
		var answer struct{ Return []json.RawMessage }
		if err := a.post("/run", low, &answer); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s", answer.Return), nil
	}
	if got, err := run("test.arg"); err != nil || !strings.Contains(got, `"one"`) ||
		!strings.Contains(got, `"box"`) {
		t.Errorf("%s: ssh: %s, %v", a.Name, got, err)
	}
	if got, err := run("cmd.run"); err == nil {
		t.Errorf("%s: alice may run cmd.run by ssh: %s", a.Name, got)
	}
	if got, err := a.call(map[string]any{"client": "ssh", "tgt": "box*", "fun": "test.ping"}); err == nil ||
		!strings.Contains(err.Error(), "401") {
		t.Errorf("%s: ssh in a session, which docs/differences.md says fails: %s, %v", a.Name, got, err)
	}
}

// hook posts to the web hook. Then it waits in a stream for the hook's event, and for the master's
// reaction to it.
func (a *saltAPI) hook(t *testing.T, events <-chan string, master string) {
	t.Helper()
	build := fmt.Sprint(time.Now().UnixNano())
	var answer struct{ Success bool }
	if err := a.post("/hook/build", map[string]string{"build": build}, &answer); err != nil ||
		!answer.Success {
		t.Fatalf("hook: %+v, %v", answer, err)
	}
	limit := time.After(Within(30 * time.Second))
	for heard, reacted := false, false; !heard || !reacted; {
		select {
		case line, ok := <-events:
			if !ok {
				t.Fatal("the stream of events ended")
			}
			if !strings.Contains(line, build) {
				continue
			}
			heard = heard || strings.Contains(line, `"tag": "salt/netapi/hook/build"`)
			reacted = reacted || strings.Contains(line, `"tag": "hook/seen"`) &&
				strings.Contains(line, `"where": "`+master+`"`)
		case <-limit:
			t.Fatalf("in time: event of the hook %v, reaction %v", heard, reacted)
		}
	}
}
