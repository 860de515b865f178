package conformance

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// reference is the Salt release whose master is compared with ours.
const reference = "3008.3"

// kind is ours or Salt's master.
type kind string

const (
	ours   kind = "clustermaster"
	theirs kind = "salt-" + reference
)

// subject is a running master under test.
type subject struct {
	*e2e.Master
	kind   kind
	cfg    string // its name among variants
	base   e2e.Base
	key    *wire.PublicKey
	events *stream
}

// salt reports whether this is Salt's own master.
func (m *subject) salt() bool { return m.kind == theirs }

// path is the path of a master's file or folder.
func (m *subject) path(elem ...string) string {
	return filepath.Join(append([]string{m.Dir}, elem...)...)
}

// write creates or replaces a file of the master.
func (m *subject) write(t testing.TB, text string, elem ...string) string {
	t.Helper()
	path := m.path(elem...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// variant is a configuration that several lines share.
type variant struct {
	name    string
	options string            // YAML; DIR is the master's folder
	files   map[string]string // below the master's folder
}

var (
	// lenient serves all versions and decides by files: keys of ok-* are accepted, those of no-*
	// rejected.
	lenient = variant{name: "lenient", options: `minimum_auth_version: 0
autosign_file: DIR/autosign.conf
autoreject_file: DIR/autoreject.conf
autosign_grains_dir: DIR/grains
autosign_timeout: 2
`, files: map[string]string{
		"autosign.conf":   "# who is let in\nok-*\nre[0-9]+x\n",
		"autoreject.conf": "no-*\n",
		"grains/role":     "# allowed roles\nweb\ndb\n",
		"srv/top.sls":     "base: {}\n",
		"srv/deep/a.txt":  "some text\n",
	}}
	// strict has Salt's default version, and two options that are off by default: an age limit and
	// topics.
	strict = variant{name: "strict", options: `request_server_ttl: 30
zmq_filtering: True
autosign_file: DIR/autosign.conf
`, files: map[string]string{"autosign.conf": "ok-*\n"}}
	// crowded has room for one minion, and one more by Salt's count.
	crowded = variant{name: "crowded", options: "max_minions: 1\nauto_accept: True\n"}
	// open accepts any key, and proves its own.
	open = variant{name: "open", options: `open_mode: True
minimum_auth_version: 0
master_sign_pubkey: True
`}
	// busy is the master of the real minions.
	busy = variant{name: "busy", options: `minimum_auth_version: 0
legacy_minions: ['ok-old*']
autosign_file: DIR/autosign.conf
autoreject_file: DIR/autoreject.conf
`, files: map[string]string{"autosign.conf": "ok-*\n", "autoreject.conf": "no-*\n"}}
	// signer is restarted with different ways to sign publications.
	signer = variant{name: "signer", options: "auto_accept: True\nSIGNING\n"}
)

// suite holds the masters that lines share. They end with the test that made the suite.
type suite struct {
	t       *testing.T
	masters map[string]*subject
	crowd   *crowd
	three   *e2e.Cluster
}

func newSuite(t *testing.T) *suite { return &suite{t: t, masters: map[string]*subject{}} }

// real is the kind of master for real minions: ours, unless CLUSTERMASTER_CONFORMANCE_MASTER names
// the other, to prove what the lines expect.
func real() kind {
	if k := kind(os.Getenv("CLUSTERMASTER_CONFORMANCE_MASTER")); k != "" {
		return k
	}
	return ours
}

// update asks Salt again for its answers: `make salt-answers`.
var update = flag.Bool("update", false, "ask Salt anew, and keep its answers")

// kinds are the kinds of master to run. The tests or testdata/answers hold Salt's answers; long
// runs ask Salt whether they are right.
func kinds() []kind {
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" || !*update && !long() {
		return []kind{ours}
	}
	return []kind{ours, theirs}
}

// worded is a question in full, or the digest of a long one.
func worded(name string, load value.Map) string {
	text := fmt.Sprintf("%v", load)
	if len(text) > 1000 {
		text = fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	}
	return name + " " + text
}

// saltsText is Salt's answers to the questions, from this run or kept from an earlier one. got are
// the answers of the masters that ran.
func saltsText(t *testing.T, file, settings string, questions []string,
	got map[kind][]string) []string {
	t.Helper()
	answers := answers.Open[string](t, filepath.Join("testdata", "answers", file+".json"),
		reference, reference+settings, *update)
	texts := make([]string, len(questions))
	for i, q := range questions {
		var ask func() string
		if said := got[theirs]; said != nil {
			ask = func() string { return said[i] }
		}
		texts[i] = answers.Salt(t, answers.Turn(), q, ask)
	}
	return texts
}

func programs(t testing.TB, k kind) e2e.Programs {
	t.Helper()
	if k == theirs {
		return e2e.Theirs(t, reference)
	}
	return e2e.Ours(t)
}

// master is the running master of a kind and variant, started when first needed.
func (s *suite) master(t *testing.T, k kind, v variant) *subject {
	t.Helper()
	name := v.name + " " + string(k)
	if m := s.masters[name]; m != nil {
		if !m.Running() {
			t.Fatalf("%s has ended", name)
		}
		return m
	}
	m := newMaster(s.t, k, v)
	m.start(s.t)
	s.masters[name] = m
	return m
}

// newMaster makes a master's folders and configuration.
func newMaster(t *testing.T, k kind, v variant) *subject {
	t.Helper()
	options := v.options + "timeout: 5\n"
	if k == theirs {
		options += "worker_threads: 3\nkeysize: 2048\nenable_fqdns_grains: False\nloop_interval: 1\n"
	}
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true, Programs: programs(t, k)})
	m := &subject{Master: c.Masters[0], kind: k, cfg: v.name, base: c.Base}
	m.Configure(t, m.Config(t)+strings.ReplaceAll(options, "DIR", m.Dir))
	for name, text := range v.files {
		m.write(t, text, name)
	}
	return m
}

// start runs the master, waits until it answers, and learns its key.
func (m *subject) start(t testing.TB) {
	t.Helper()
	m.Run(t)
	// Salt's master listens before its workers answer.
	e2e.Eventually(t, 60*time.Second, string(m.kind)+" answers", func() error {
		if err := m.Ready(); err != nil {
			return err
		}
		_, err := exchange(t, m.Addr, pack(t,
			value.Map{{Key: "enc", Value: "clear"},
				{Key: "load", Value: value.Map{{Key: "cmd", Value: "ping"}}}}), 2*time.Second)
		return err
	})
}

// line is a line of the checklist.
type line struct {
	name    string // its number and a few words
	variant variant
	only    kind // "" for both
	run     func(*testing.T, *subject)
}

// each runs a line on every kind of master that it is for.
func (s *suite) each(l line) {
	s.t.Run(l.name, func(t *testing.T) {
		for _, k := range kinds() {
			if l.only == "" || l.only == k {
				t.Run(string(k), func(t *testing.T) { l.run(t, s.master(t, k, l.variant)) })
			}
		}
	})
}
