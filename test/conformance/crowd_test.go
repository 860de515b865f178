package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
)

// legacy are releases whose minions speak version 2 of the protocol.
var legacy = []string{"3006.0", "3006.9", "3007.1"}

// crowd is the real minions of the lines marked A. All of them start together, because their lines
// mostly wait.
type crowd struct {
	busy   *subject
	events *stream

	// of the busy master, behind their own relays: today's releases, legacy ones
	new, old  []*member
	foreign   []*member // line 47
	verifying []*member // line 48: verify and sign, verify only, sign only
	rejected  []*member // line 49
	signed    []*member // line 59
	signer    *subject
	filtering []*member // line 61
}

// member is a real minion.
type member struct {
	*e2e.Minion
	relay *relay // nil if it is connected directly
}

// quick are options for minions of tests, to avoid the waits by which Salt's defaults spread load.
const quick = "recon_default: 500\nrecon_max: 1500\nrecon_randomize: True\nauth_timeout: 5\nrandom_reauth_delay: 1\nmultiprocessing: False\n"

// id makes a minion's id from a prefix and its release.
func id(prefix, release string) string {
	return prefix + "-" + strings.ReplaceAll(release,
		".", "-")
}

func haveRelease(t testing.TB, release string) bool {
	_, err := os.Stat(filepath.Join(e2e.Venvs(t), "salt-"+release, "bin", "salt-minion"))
	return err == nil
}

// pingInterval is the option's value in minutes. Minions accept fractions.
func pingInterval() string {
	if long() {
		return "1"
	}
	return "0.25"
}

// long reports whether the lines that take minutes are run too.
func long() bool { return answers.Long() }

// minions are the real minions, started when first needed.
func (s *suite) minions(t *testing.T) *crowd {
	t.Helper()
	e2e.Venvs(t)
	if s.crowd != nil {
		return s.crowd
	}
	c := &crowd{busy: s.master(t, real(), busy)}
	s.crowd = c
	c.events = s.listen(t, c.busy)
	dir := e2e.Folder(s.t)
	add := func(list *[]*member, prefix, release, extra string, at *subject, relayed int) *member {
		m := &member{}
		addr := at.Addr
		if relayed > 0 {
			m.relay = newRelay(s.t, at.base.Master(100+relayed), at.Addr)
			addr = m.relay.addr
		}
		m.Minion = e2e.NewMinion(s.t, dir,
			e2e.MinionOptions{ID: id(prefix, release), Release: release, Master: addr,
				Extra: quick + extra})
		*list = append(*list, m)
		return m
	}

	options := "master_alive_interval: 5\nping_interval: " + pingInterval() + "\n"
	n := 0
	for _, r := range e2e.Releases {
		n++
		add(&c.new, "minion", r, options, c.busy, n)
	}
	for _, r := range legacy {
		if haveRelease(t, r) {
			n++
			add(&c.old, "ok-old", r, options, c.busy, n)
		}
	}
	for _, r := range e2e.Releases {
		m := add(&c.foreign, "ok-foreign", r, "", c.busy, 0)
		m.write(t, "minion_master.pub", keyNumber(t, 2).Public().Text()+"\n")
		add(&c.rejected, "no", r, "", c.busy, 0)
	}
	proving := s.master(t, real(), open)
	add(&c.verifying, "ok-verify-signed", reference, "verify_master_pubkey_sign: True\n",
		proving, 0).
		write(t, "master_sign.pub", string(readFile(t, proving.path("pki", "master_sign.pub"))))
	add(&c.verifying, "ok-verify-unsigned", reference, "verify_master_pubkey_sign: True\n",
		c.busy, 0).
		write(t, "master_sign.pub", string(readFile(t, proving.path("pki", "master_sign.pub"))))
	add(&c.verifying, "ok-trust-signed", reference, "", proving, 0)
	c.signer = s.master(t, real(), signing(""))
	strictMaster := s.master(t, real(), strict)
	for _, r := range e2e.Releases {
		n++
		add(&c.signed, "signed", r, "sign_pub_messages: True\n", c.signer, n)
		add(&c.filtering, "ok-61", r, "zmq_filtering: True\n", strictMaster, 0)
	}
	for _, list := range [][]*member{c.new, c.old, c.rejected, c.foreign, c.verifying, c.filtering,
		c.signed} {
		for _, m := range list {
			m.Run(s.t)
		}
	}
	s.t.Cleanup(func() { // first of all: otherwise they end one by one, which takes long
		for _, m := range slices.Concat(c.new, c.old, c.foreign, c.verifying, c.rejected, c.signed,
			c.filtering) {
			if m.Running() {
				m.Kill(s.t)
			}
		}
	})
	return c
}

// write puts a file into the minion's pki folder.
func (m *member) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.Dir, "pki", name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func ids(members []*member) []string {
	var list []string
	for _, m := range members {
		list = append(list, m.ID)
	}
	slices.Sort(list)
	return list
}

// call runs a function on listed minions and returns their answers.
func call(t testing.TB, m *subject, who []string, args ...string) (map[string]any, e2e.Result) {
	t.Helper()
	return callTarget(t, m, append([]string{"-L", strings.Join(who, ",")}, args...)...)
}

func callTarget(t testing.TB, m *subject, args ...string) (map[string]any, e2e.Result) {
	t.Helper()
	r := m.Salt(t, append([]string{"--out=json", "--static", "-t", "60"}, args...)...)
	answers := map[string]any{}
	if err := json.Unmarshal([]byte(r.Stdout), &answers); err != nil {
		return nil, r
	}
	return answers, r
}

// pinged returns nil if all of them answered test.ping.
func pinged(t testing.TB, m *subject, who []string) error {
	t.Helper()
	if len(who) == 0 {
		return nil
	}
	answers, r := call(t, m, who, "test.ping")
	for _, id := range who {
		if answers[id] != true {
			return fmt.Errorf("%s did not answer\n%v", id, r)
		}
	}
	return nil
}

// answered is pinged for minions of the crowd; they are asked again if one of them lost the job.
func answered(t testing.TB, m *subject, members []*member) (err error) {
	t.Helper()
	count := func() (n int) {
		for _, m := range members {
			n += len(m.lost(t))
		}
		return n
	}
	for range 3 {
		before := count()
		if err = pinged(t, m, ids(members)); err == nil || count() == before {
			return err
		}
	}
	return err
}

var lostJob = regexp.MustCompile(`Exception in thread ProcessPayload\(jid=(\d+)\):\n` +
	`Traceback.*\n(?:[ \t].*\n)*RuntimeError: dictionary changed size during iteration`)

// lost are the jobs that the minion did not run because it runs jobs in threads (multiprocessing:
// False): one copied the options while another changed them.
func (m *member) lost(t testing.TB) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(m.Output)
	if err != nil {
		t.Fatal(err)
	}
	jids := map[string]bool{}
	for _, found := range lostJob.FindAllSubmatch(b, -1) {
		jids[string(found[1])] = true
	}
	return jids
}

// connected waits until all have their publish connection, the first or a new one.
func connected(t testing.TB, members []*member, limit time.Duration) {
	t.Helper()
	e2e.Eventually(t, limit, "publish connections", func() error {
		for _, m := range members {
			if m.relay.open(e2e.PublishPort) == 0 {
				return fmt.Errorf("%s has none", m.ID)
			}
		}
		return nil
	})
}

// returns are the return events of a job, counted per minion.
func (s *stream) returns(jid string) map[string]int {
	count := map[string]int{}
	for _, h := range s.since(0, func(h happening) bool {
		return strings.HasPrefix(h.Tag,
			"salt/job/"+jid+"/ret/")
	}) {
		count[strings.TrimPrefix(h.Tag, "salt/job/"+jid+"/ret/")]++
	}
	return count
}
