package conformance

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"clustermaster/test/e2e"
	transport "clustermaster/transport/minion"
	"clustermaster/value"
	"clustermaster/wire"
)

// open returns nil if one of the ports of the master's address is open.
func (m *subject) open(ports ...int) error {
	var wrong error
	for _, port := range ports {
		conn, err := net.DialTimeout("tcp", hostPort(m.Addr, port), time.Second)
		if err == nil {
			conn.Close()
			return nil
		}
		wrong = errors.Join(wrong, err)
	}
	return wrong
}

// returned sends a client's return of a job.
func (c *client) returned(t *testing.T, jid string, more ...value.Pair) {
	t.Helper()
	load := c.load(t, "_return", append([]value.Pair{pair("jid", jid), pair("fun", "test.arg"),
		pair("fun_args", []any{}), pair("return", "of "+c.ID), pair("retcode", int64(0)),
		pair("success", true)}, more...)...)
	c.m.send(t, c.seal(t, load))
}

// stored is what jobs.lookup_jid shows of a job.
func stored(t *testing.T, m *subject, jid string) string {
	t.Helper()
	r := m.Runner(t, "--out=json", "jobs.lookup_jid", jid)
	var got map[string]any
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
		t.Fatalf("%v in %v", err, r)
	}
	return fmt.Sprint(got)
}

var times = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d+|[\d.]+ m?s\b`)

// orchestrated is what salt-run prints about states of an orchestration; of makes the part that is
// compared.
func orchestrated(options, sls string, of func(stdout string) string) wired {
	return wired{options: options, ask: func(t *testing.T, m *subject) string {
		r := m.Runner(t, "state.orchestrate", sls)
		return of(times.ReplaceAllString(r.Stdout, "TIME"))
	}}
}

// linesWith are the lines of a text that contain the first word, then those with the second.
func linesWith(words ...string) func(string) string {
	return func(text string) string {
		var out strings.Builder
		for _, word := range words {
			for line := range strings.Lines(text) {
				if strings.Contains(line, word) {
					out.WriteString(line)
				}
			}
		}
		return out.String()
	}
}

// commandWiring has options of what the commands print, of states and of jobs.
func commandWiring() wiring {
	return wiring{
		name: "commands",
		both: "gather_job_timeout: 1\nexternal_auth: {auto: {ann: ['.*']}}\n",
		set: `state_output: terse
state_verbose: False
strip_colors: False
cli_summary: True
token_file: DIR/token
global_state_conditions: {test.configurable_test_state: ['G@kernel:Plan9']}
disabled_requisites: [require]
state_max_parallel: 1
job_cache_store_endtime: True
preserve_minion_cache: True
`,
		files: map[string]string{
			"srv/changed.sls": "changed: {test.succeed_with_changes: []}\n",
			"srv/same.sls":    "same: {test.nop: []}\nother: {test.succeed_with_changes: []}\n",
			"srv/meant.sls": "meant: {test.configurable_test_state: [{changes: True}, " +
				"{result: True}]}\n",
			"srv/needs.sls": "fails: {test.fail_with_changes: []}\n" +
				"needs: {test.succeed_with_changes: [{require: [{test: fails}]}]}\n",
			"srv/beside.sls": `one: {salt.runner: [{name: test.sleep}, {s_time: 2}, {parallel: True}]}
two: {salt.runner: [{name: test.sleep}, {s_time: 2}, {parallel: True}]}
`,
		},
		looks: []wired{
			orchestrated("state_output", "changed", linesWith("changed")),
			orchestrated("state_verbose", "same", linesWith("same")),
			orchestrated("global_state_conditions", "meant", linesWith("Succeeded: ")),
			orchestrated("disabled_requisites", "needs", linesWith("Failed: ")),
			{options: "state_max_parallel", ask: besideEachOther},
			{options: "strip_colors", ask: func(t *testing.T, m *subject) string {
				return m.Runner(t, "--no-color", "test.arg", "a\x1b[31mb").Stdout
			}},
			{options: "cli_summary", ask: func(t *testing.T, m *subject) string {
				m.signIn(t, "silent", 3)
				return linesWith("# of")(m.Salt(t, "-t", "1", "silent", "test.ping").Stdout)
			}},
			{options: "token_file", ask: func(t *testing.T, m *subject) string {
				m.Salt(t, "-T", "-a", "auto", "--username=ann", "--password=x", "--async", "silent",
					"test.ping")
				_, err := os.Stat(m.path("token"))
				return fmt.Sprint("written: ", err == nil)
			}},
			{options: "job_cache_store_endtime", ask: func(t *testing.T, m *subject) string {
				c := m.signIn(t, "returns", 3)
				jid := order(t, m, "returns")
				c.returned(t, jid)
				return fmt.Sprint("time: ", strings.Contains(m.Runner(t, "jobs.list_job", jid).Stdout,
					"EndTime"))
			}},
			{options: "preserve_minion_cache", ask: func(t *testing.T, m *subject) string {
				if _, err := m.pillarOf(t, "leaves", pair("grains", dict("os", "Plan9"))); err != nil {
					t.Fatal(err)
				}
				m.changeKey(t, "-d", "leaves")
				m.signIn(t, "leaves", 3)
				return fmt.Sprint("kept: ", strings.Contains(m.Runner(t, "cache.grains", "leaves").Stdout,
					"Plan9"))
			}},
		},
	}
}

// besideEachOther reports whether two parallel states of an orchestration ran at the same time.
func besideEachOther(t *testing.T, m *subject) string {
	r := m.Runner(t, "--out=json", "state.orchestrate", "beside")
	starts := regexp.MustCompile(`"start_time": "([\d:.]+)"`).FindAllStringSubmatch(r.Stdout, -1)
	if len(starts) != 2 {
		t.Fatalf("%v", r)
	}
	var at [2]time.Time
	for i, s := range starts {
		var err error
		if at[i], err = time.Parse("15:04:05.999999", s[1]); err != nil {
			t.Fatal(err)
		}
	}
	apart := at[0].Sub(at[1]).Abs()
	return fmt.Sprint("at the same time: ", apart < 1900*time.Millisecond)
}

// silentWiring has options that turn off what happens by default.
func silentWiring() wiring {
	return wiring{
		name: "silent",
		set: `auth_events: False
job_cache: False
`,
		looks: []wired{
			{options: "auth_events", ask: func(t *testing.T, m *subject) string {
				h := hear(t, m.path("run"))
				c := m.signIn(t, "heard", 3)
				c.request(t, "_minion_event", pair("tag", "my/end"), pair("data", dict("a", "b")))
				h.wait(t, "my/end")
				return fmt.Sprint(h.times("salt/auth"))
			}},
			{options: "job_cache", ask: func(t *testing.T, m *subject) string {
				return storedReturn(t, m, "returns")
			}},
		},
	}
}

// storedReturn is what is stored of a job that a minion returns, with more in its return.
func storedReturn(t *testing.T, m *subject, id string, more ...value.Pair) string {
	t.Helper()
	c := m.signIn(t, id, 3)
	jid := order(t, m, id)
	c.returned(t, jid, more...)
	return stored(t, m, jid)
}

// signedWiring has options of signatures.
func signedWiring() wiring {
	return wiring{
		name: "signed",
		set: `require_minion_sign_messages: True
drop_messages_signature_fail: True
`,
		looks: []wired{
			{options: "require_minion_sign_messages", ask: func(t *testing.T, m *subject) string {
				return storedReturn(t, m, "unsigned")
			}},
			{options: "drop_messages_signature_fail", ask: func(t *testing.T, m *subject) string {
				return storedReturn(t, m, "wrong", pair("sig", bytes.Repeat([]byte{1}, 256)))
			}},
		},
	}
}

// readyWiring has the options of a signature that is ready.
func readyWiring() wiring {
	return wiring{
		name: "ready",
		both: "master_sign_pubkey: True\n",
		set: `master_use_pubkey_signature: True
master_pubkey_signature: ready.txt
`,
		files: map[string]string{"pki/ready.txt": "cmVhZHk=\n"},
		looks: []wired{
			{options: "master_use_pubkey_signature master_pubkey_signature", ask: func(t *testing.T,
				m *subject) string {
				c := m.newClient(t, "proves", 3)
				_ = c.auth(t) // the signature is none
				outer := unpack(t, c.reply).(value.Map)
				load, err := value.UnpackMap(outer.Bytes("load"))
				if err != nil {
					t.Fatal(err)
				}
				sig, _ := load.Get("pub_sig")
				if text, _ := sig.(string); len(text) > 100 {
					return "a signature"
				}
				return showValue(sig)
			}},
		},
	}
}

// writeSealedKey writes a pair of keys, the private one encrypted, and returns the public one.
func (m *subject) writeSealedKey(t *testing.T, path string) *wire.PublicKey {
	t.Helper()
	key := keyNumber(t, 1)
	text, err := key.SealedPEM("abc")
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, string(text), path+".pem")
	m.write(t, key.Public().Text()+"\n", path+".pub")
	return key.Public()
}

// passphraseWiring has a master with an older key, which is encrypted.
func passphraseWiring() wiring {
	return wiring{
		name:    "passphrase",
		set:     "key_pass: abc\n",
		refused: "passphrase missing or wrong",
		prepare: func(t *testing.T, m *subject) {
			m.writeSealedKey(t, "pki/master")
		},
		looks: []wired{
			{options: "key_pass", ask: func(t *testing.T, m *subject) string {
				got := m.signIn(t, "knows", 3).got.Master.Text()
				return fmt.Sprint("the same key: ", got == keyNumber(t, 1).Public().Text())
			}},
		},
	}
}

// unprivilegedWiring has options of files that a group may write to. As root they count only for
// files of root's further groups, so these masters give their rights up.
func unprivilegedWiring() wiring {
	return wiring{
		name: "unprivileged",
		both: "user: nobody\nauto_accept: False\nautosign_file: DIR/autosign\n",
		set:  "permissive_pki_access: True\n",
		files: map[string]string{
			"autosign": "grouped\n",
		},
		prepare: func(t *testing.T, m *subject) {
			if os.Getuid() != 0 {
				t.Skip("only root becomes another user")
			}
			if err := os.Chmod(m.path("autosign"), 0o664); err != nil {
				t.Fatal(err)
			}
			nobody, err := user.Lookup("nobody")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Dir(m.Dir), 0o711); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("chown", "-R", nobody.Uid+":"+nobody.Gid, m.Dir).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		},
		looks: []wired{
			// Only ours: others may not read the Python of some machines.
			{options: "permissive_pki_access", own: true, ask: func(t *testing.T, m *subject) string {
				return fmt.Sprint(m.first(t, "grouped"))
			}},
		},
	}
}

// serveAt serves HTTP at an address until the test ends.
func serveAt(t *testing.T, addr string, f http.HandlerFunc) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: f}
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close() })
}

// ann are the credentials of a user.
var ann = dict("eauth", "auto", "username", "ann", "password", "x")

// may is the reply to an order of ann's to the minion aimed.
func may(t *testing.T, m *subject, creds value.Map, fun string) string {
	load := jobOf("key", absent, "tgt", "aimed", "fun", fun, "user", "ann", "kwargs", creds)
	return show(t, m.clear(t, 3, load))
}

// rightsWiring has options of users' rights. A service, which a look starts, says who has which.
func rightsWiring() wiring {
	serve := func(t *testing.T, m *subject, list *string) {
		serveAt(t, hostPort(m.Addr, 4610), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, *list)
		})
	}
	return wiring{
		name: "rights",
		both: `enable_clear_commands: True
external_auth:
  auto: {ann: [test.ping]}
  rest: {^url: 'http://ADDR:4610/'}
traces_endpoint: http://ADDR:4611
`,
		set: `eauth_acl_module: rest
keep_acl_in_token: True
output: json
show_jid: True
hash_type: sha512
token_expire: 100
traces_ratio: 0
pub_server_write_queue_size: 5
max_event_size: 200000
pub_hwm: 1
`,
		files: map[string]string{"srv/hashed": "text\n"},
		looks: []wired{
			{options: "output", own: true, ask: func(t *testing.T, m *subject) string {
				return m.Runner(t, "test.arg", "a").Stdout
			}},
			{options: "show_jid", own: true, ask: func(t *testing.T, m *subject) string {
				m.signIn(t, "shown", 3)
				return linesWith("jid: ")(m.Salt(t, "-t", "1", "shown", "test.ping").Stdout)
			}},
			{options: "hash_type", own: true, ask: func(t *testing.T, m *subject) string {
				return say(t, m, m.signIn(t, "hashes", 3).request(t, "_file_hash", pair("path", "hashed"),
					pair("saltenv", "base")))
			}},
			{options: "pub_server_write_queue_size", own: true, ask: func(t *testing.T, m *subject) string {
				return fmt.Sprint("disconnected: ", m.disconnects(t, 20))
			}},
			{options: "pub_hwm", own: true, ask: func(t *testing.T, m *subject) string {
				// It reads one publication and no more.
				idle, err := transport.DialSubscribe(t.Context(), hostPort(m.Addr, e2e.PublishPort),
					[]string{""}, transport.ClientOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer idle.Close()
				go func() { _, _ = idle.Next() }()
				<-idle.Confirmed()
				m.signIn(t, "flooded", 3)
				args := append([]string{"--async", "-L", "flooded", "test.arg"},
					slices.Repeat([]string{strings.Repeat("x", 100_000)}, 10)...)
				for range 20 { // more than the kernel keeps for a connection
					if r := m.Salt(t, args...); r.Code != 0 {
						t.Fatal(r)
					}
				}
				return fmt.Sprint("dropped: ",
					m.counters(t)[`minion_publication_copies_total{endpoint="publish",result="slow"}`] > 0)
			}},
			{options: "max_event_size", own: true, ask: func(t *testing.T, m *subject) string {
				h := hear(t, m.path("run"))
				m.signIn(t, "large", 3).request(t, "_minion_event", pair("tag", "my/large"), pair("data",
					dict("text", strings.Repeat("x", 300_000))))
				h.wait(t, "my/large")
				h.mu.Lock()
				defer h.mu.Unlock()
				return fmt.Sprint("trimmed: ", bytes.Contains(h.all, []byte("VALUE_TRIMMED")))
			}},
			{options: "traces_ratio", own: true, ask: func(t *testing.T, m *subject) string {
				traced := make(chan bool, 1000)
				serveAt(t, hostPort(m.Addr, 4611), func(http.ResponseWriter, *http.Request) { traced <- true })
				m.signIn(t, "traced", 3).returned(t, order(t, m, "traced"))
				return fmt.Sprint("traced: ", m.ends(func() bool { return len(traced) > 0 }))
			}},
			{options: "eauth_acl_module keep_acl_in_token", own: true, ask: func(t *testing.T,
				m *subject) string {
				m.signIn(t, "aimed", 3)
				list := `["test.version"]`
				serve(t, m, &list)
				text := may(t, m, ann, "test.ping") + may(t, m, ann, "test.version")
				reply, _ := unpack(t, m.clear(t, 3, append(dict("cmd", "mk_token"), ann...))).(value.Map)
				token := dict("token", reply.String("token"))
				list = "[]"
				return text + " by token " + may(t, m, token, "test.ping") +
					may(t, m, token, "test.version")
			}},
			{options: "token_expire", own: true, ask: func(t *testing.T, m *subject) string {
				reply, _ := unpack(t, m.clear(t, 3, append(dict("cmd", "mk_token"), ann...))).(value.Map)
				at := func(key string) float64 { v, _ := reply.Get(key); n, _ := v.(float64); return n }
				if reply.String("token") == "" {
					t.Fatal("no token")
				}
				return fmt.Sprintf("%.0f s", at("expire")-at("start"))
			}},
		},
	}
}

// portWiring has options of ports.
func portWiring() wiring {
	insecure := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	get := func(url, user string) string {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			return err.Error()
		}
		if user != "" {
			req.SetBasicAuth(user, "word")
		}
		r, err := insecure.Do(req)
		if err != nil {
			return "no answer"
		}
		defer r.Body.Close()
		return r.Status
	}
	at := func(m *subject, port int, path string) string { return "://" + hostPort(m.Addr, port) + path }
	// The metrics are on one of two ports, in one of two ways.
	metrics := func(m *subject, user string) (all []string) {
		for _, port := range []int{e2e.MetricsPort, 4622} {
			for _, scheme := range []string{"http", "https"} {
				all = append(all, get(scheme+at(m, port, "/metrics"), user))
			}
		}
		return all
	}
	return wiring{
		name:  "ports",
		ports: []int{e2e.RequestPort, 4606},
		set: `ret_port: 4606
health_listen: ADDR:4621
metrics_listen: ADDR:4622
metrics_tls_cert: DIR/door.pem
metrics_tls_key: DIR/door.pem
metrics_users: DIR/users
output_file: DIR/printed
log_rotate_max_bytes: 2000
log_rotate_backup_count: 2
`,
		both:    "log_level_logfile: debug\n",
		prepare: doorFiles,
		looks: []wired{
			{options: "ret_port", own: true, ask: func(_ *testing.T, m *subject) string {
				return fmt.Sprint(m.open(e2e.RequestPort) == nil, m.open(4606) == nil)
			}},
			{options: "health_listen", own: true, ask: func(_ *testing.T, m *subject) string {
				return get("http"+at(m, e2e.HealthPort, "/livez"), "") + ", " +
					get("http"+at(m, 4621, "/livez"), "")
			}},
			{options: "metrics_listen metrics_tls_cert metrics_tls_key", own: true,
				ask: func(_ *testing.T, m *subject) string { return fmt.Sprintf("%q", metrics(m, "reads")) }},
			{options: "metrics_users", own: true, ask: func(_ *testing.T, m *subject) string {
				return fmt.Sprint("open to all: ", strings.Contains(fmt.Sprint(metrics(m, "")), "200"))
			}},
			{options: "output_file", own: true, ask: func(t *testing.T, m *subject) string {
				r := m.Runner(t, "--out=json", "test.arg", "printed")
				text, err := os.ReadFile(m.path("printed"))
				return fmt.Sprint(strings.Contains(r.Stdout, "printed"), err == nil,
					strings.Contains(string(text), "printed"))
			}},
			{options: "log_rotate_max_bytes log_rotate_backup_count", own: true, ask: func(t *testing.T,
				m *subject) string {
				kept := func() []string {
					names, err := filepath.Glob(m.Log + ".*")
					if err != nil {
						t.Fatal(err)
					}
					return names
				}
				m.ends(func() bool {
					m.Runner(t, "test.arg")
					return len(kept()) > 1
				})
				return fmt.Sprint(kept())
			}},
		},
	}
}

// doorFiles makes a certificate and a file of users for the metrics.
func doorFiles(t *testing.T, m *subject) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(m.Addr)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("word"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	for name, text := range map[string]string{"door.pem": string(text),
		"users": "reads:" + string(hash) + "\n"} {
		if err := os.Chmod(m.write(t, text, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// disconnects reports whether a listener on the local bus that reads nothing is disconnected when
// events of 100 kB are fired.
func (m *subject) disconnects(t *testing.T, events int) bool {
	t.Helper()
	conn, err := net.Dial("unix", m.path("run", "master_event_pub.ipc"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := m.signIn(t, "large", 3)
	for range events {
		c.request(t, "_minion_event", pair("tag", "large"), pair("data",
			dict("text", strings.Repeat("x", 100_000))))
	}
	return m.ends(func() bool {
		_, err := conn.Write([]byte{0})
		return err != nil
	})
}

// reactionWiring has options of reactions and of the event bus.
func reactionWiring() wiring {
	runs := regexp.MustCompile(`salt/run/\d{20}/(new|ret)\n\n`)
	happened := func(h *heard) (list []string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, found := range runs.FindAllSubmatch(h.all, -1) {
			list = append(list, string(found[1]))
		}
		return list
	}
	fire := func(t *testing.T, m *subject, tag string, n int) *heard {
		h := hear(t, m.path("run"))
		c := m.signIn(t, "fires", 3)
		events := make([]any, n)
		for i := range events {
			events[i] = dict("tag", fmt.Sprint(tag, i), "data", dict("a", "b"))
		}
		c.request(t, "_minion_event", pair("events", events))
		return h
	}
	return wiring{
		name: "reactions",
		both: "reactor: [{'my/*': [DIR/nap.sls]}, {'long/*': [DIR/long.sls]}]\ntraces_endpoint: http://ADDR:4611\n",
		set: `reactor_worker_threads: 1
reactor_worker_hwm: 1
publish_drain_timeout: 1
traces_returns: 1
`,
		files: map[string]string{"nap.sls": "nap: {runner.test.sleep: [{args: [{s_time: 1}]}]}\n",
			"long.sls": "nap: {runner.test.sleep: [{args: [{s_time: 3}]}]}\n"},
		looks: []wired{
			{options: "reactor_worker_threads", own: true, ask: func(t *testing.T, m *subject) string {
				h := fire(t, m, "long/", 2)
				endsWithin(20*time.Second, func() bool { return len(happened(h)) > 3 })
				return fmt.Sprint(happened(h))
			}},
			{options: "reactor_worker_hwm", own: true, ask: func(t *testing.T, m *subject) string {
				h := fire(t, m, "my/", 6)
				return fmt.Sprint("all: ", m.ends(func() bool { return len(happened(h)) == 12 }))
			}},
			{options: "publish_drain_timeout", own: true, ask: func(t *testing.T, m *subject) string {
				return fmt.Sprint("disconnected: ", m.disconnects(t, 20))
			}},
			{options: "traces_returns", own: true, ask: func(t *testing.T, m *subject) string {
				one, other := m.signIn(t, "one", 3), m.signIn(t, "other", 3)
				jid := order(t, m, "one,other")
				one.returned(t, jid)
				other.returned(t, jid)
				return fmt.Sprint("left out: ", m.counters(t)["trace_returns_left_out_total"])
			}},
		},
	}
}
