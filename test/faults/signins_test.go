package faults

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/tools/simminion"
	transport "clustermaster/transport/minion"
	"clustermaster/value"
	"clustermaster/wire"
)

// Bounds of the master of TestSignInAttacks.
const (
	maxPending   = 60
	maxPerSource = 20
)

// reactorOfSalt is how Salt's documentation has a master accept the keys of its own machines. The
// id in it is unquoted.
const reactorOfSalt = `{% if 'act' in data and data['act'] == 'pend' and data['id'].startswith('ink') %}
minion_add:
  wheel.key.accept:
    - match: {{ data['id'] }}
{% endif %}
`

// TestSignInAttacks does to running masters what anyone can do who reaches their request port.
// Nothing without a bound is stored, and nothing is run.
func TestSignInAttacks(t *testing.T) {
	t.Parallel()
	sls := filepath.Join(e2e.Folder(t), "auth.sls")
	if err := os.WriteFile(sls, []byte(reactorOfSalt), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 3,
		fmt.Sprintf("max_pending_keys: %d\nmax_pending_keys_per_source: %d\nproxy_protocol: True\n"+
			"proxy_protocol_from: [0.0.0.0/0]\nunknown_key_processors: 2\nreactor:\n  - salt/auth: [%s]\n", maxPending, maxPerSource, sls))
	s := stranger{c.Masters[0], c.Masters}
	equal(t, "processors for strangers", metric(t, s.m, "clustermaster_sign_in_processors",
		`who="strangers"`), min(2, metric(t, s.m, "go_sched_gomaxprocs_threads", "")))
	t.Run("keys of a megabyte", s.largeKeys)
	t.Run("nonces that are signed", s.nonces)
	t.Run("a line break in the id", s.lineBreaks)
	t.Run("a full list", s.fullList)
	t.Run("keys for a known id", s.deniedKeys)
}

// stranger asks one of several masters.
type stranger struct {
	m   *e2e.Master
	all []*e2e.Master
}

// offer is the load of a sign-in.
func offer(t testing.TB, id, pub, nonce string) []byte {
	t.Helper()
	b, err := value.Pack(value.Map{{Key: "enc", Value: "clear"}, {Key: "version", Value: 3},
		{Key: "load", Value: value.Map{
			{Key: "cmd", Value: "_auth"}, {Key: "id", Value: id}, {Key: "pub", Value: pub},
			{Key: "nonce", Value: nonce},
			{Key: "enc_algo", Value: wire.EncSHA1}, {Key: "sig_algo", Value: wire.SigSHA1},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const someNonce = "0123456789abcdef0123456789abcdef"

// said is the content of a reply to a sign-in: its text, or its ret.
func said(reply []byte) any {
	v, err := value.Unpack(reply)
	if err != nil {
		return err
	}
	outer, isMap := v.(value.Map)
	if !isMap {
		return v
	}
	inner, err := value.UnpackMap(outer.Bytes("load"))
	if err != nil {
		return err
	}
	ret, _ := inner.Get("ret")
	return ret
}

// connect opens a connection as a stranger from an address; "" means the test's own.
func (s stranger) connect(t testing.TB, from string) *transport.RequestClient {
	t.Helper()
	addr := hostPort(s.m, e2e.RequestPort)
	if from != "" {
		addr = proxied(t, addr, from)
	}
	c, err := transport.DialRequests(within(t, 10*time.Second), addr, transport.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// proxied is a balancer for one connection, which announces the given address as its source.
func proxied(t testing.TB, to, from string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	family := "TCP4"
	if strings.Contains(from, ":") {
		family = "TCP6"
	}
	wg.Go(func() {
		in, err := ln.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer out.Close()
		if _, err := fmt.Fprintf(out, "PROXY %s %s %[2]s 40000 4506\r\n", family,
			from); err != nil {
			return
		}
		wg.Go(func() { _, _ = io.Copy(in, out); in.Close() })
		_, _ = io.Copy(out, in)
	})
	return ln.Addr().String()
}

// ask makes one request and returns the answer as said does.
func ask(t testing.TB, c *transport.RequestClient, payload []byte) any {
	t.Helper()
	reply, err := c.Do(within(t, 10*time.Second), payload)
	if err != nil {
		t.Fatal(err)
	}
	return said(reply)
}

// goodKey is the text of a key that all strangers share.
func goodKey(t testing.TB) string {
	t.Helper()
	k, err := minionKey()
	if err != nil {
		t.Fatal(err)
	}
	return k.Public().Text()
}

// madeKey is the text of one of many different keys, whose private halves do not exist.
func madeKey(t testing.TB, number int) string {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), 2047)
	der, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n.Add(n, big.NewInt(int64(2*number+1))),
		E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	return wire.CleanKey(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
}

// applied is the index that all masters have applied, once they agree on one.
func (s stranger) applied(t testing.TB) (index float64) {
	t.Helper()
	e2e.Eventually(t, healed, "all masters have applied the same", func() error {
		index = metric(t, s.m, "clustermaster_cluster_applied_index", "")
		for _, m := range s.all {
			if n := metric(t, m, "clustermaster_cluster_applied_index", ""); n != index {
				return fmt.Errorf("%s is at %v, %s at %v", m.ID, n, s.m.ID, index)
			}
		}
		return nil
	})
	return index
}

// ofOthers bounds the log entries in a time that no request causes: masters compare their states
// once a minute.
func ofOthers(d time.Duration) float64 { return 1 + math.Ceil(d.Minutes()) }

// mark is an index of the log and the time at which all masters had applied it.
type mark struct {
	index float64
	at    time.Time
}

// unmoved expects no log entries since before, except ofOthers.
func (s stranger) unmoved(t testing.TB, what string, before mark) {
	t.Helper()
	now := s.applied(t)
	allowed := before.index + ofOthers(time.Since(before.at))
	if now < before.index || now > allowed {
		t.Errorf("%s: got %v, want %v to %v", what, now, before.index, allowed)
	}
}

// quiet waits until nothing is written: a cluster that has just started changes its ring.
func (s stranger) quiet(t testing.TB) mark {
	t.Helper()
	var index float64
	since := time.Now()
	e2e.Eventually(t, healed, "nothing is written any more", func() error {
		if now := s.applied(t); now != index {
			index, since = now, time.Now()
		}
		if time.Since(since) < time.Second {
			return fmt.Errorf("there was something %v ago", time.Since(since))
		}
		return nil
	})
	return mark{index, since}
}

// refusals is how many requests the asked master has refused for a reason.
func (s stranger) refusals(t testing.TB, reason string) float64 {
	t.Helper()
	return metric(t, s.m, "clustermaster_requests_refused_total", `reason="`+reason+`"`)
}

// residentKB is the memory of a master.
func residentKB(t testing.TB, m *e2e.Master) int {
	t.Helper()
	return e2e.ProcNumber(t, m.PID(), "VmRSS")
}

// largeKeys offers 300 unknown ids with keys of a megabyte. Unbounded they would block key
// management and cost each master a gigabyte.
func (s stranger) largeKeys(t *testing.T) {
	index, length, kind := s.quiet(t), s.refusals(t, "auth_pub_length"), s.refusals(t,
		"auth_pub_not_a_key")
	memory := residentKB(t, s.all[1])
	c := s.connect(t, "")
	good := goodKey(t)
	junk := strings.Repeat("k", 1_000_000)
	for i := range 300 {
		if got := ask(t, c, offer(t, fmt.Sprintf("large%d", i),
			[]string{junk, good + "\n" + junk}[i%2], someNonce)); got != "bad load" {
			t.Fatalf("large%d: got %v", i, got)
		}
	}
	for i, pub := range []string{"not a key", "", good + "\nfoo:\n  local.cmd.run: []",
		"foo\n" + good, madeKey(t, 1)[:200]} {
		if got := ask(t, c, offer(t, fmt.Sprintf("odd%d", i), pub, someNonce)); got != "bad load" {
			t.Errorf("%.40q: got %v", pub, got)
		}
	}
	equal(t, "refused for the length", s.refusals(t, "auth_pub_length")-length, 300.0)
	equal(t, "refused as no key", s.refusals(t, "auth_pub_not_a_key")-kind, 5.0)
	s.unmoved(t, "applied index", index)
	lists, err := s.m.Keys(t)
	if err != nil || len(lists["minions_pre"]) > 0 {
		t.Errorf("pending: %v, %v", lists["minions_pre"], err)
	}
	if grown := residentKB(t, s.all[1]) - memory; e2e.MemoryCounts(t) &&
		grown > 100<<10 {
		t.Errorf("%s, which was not asked, has grown by %d KB", s.all[1].ID, grown)
	}
}

// nonces of another length are refused: the reply that repeats them is signed like a publication.
func (s stranger) nonces(t *testing.T) {
	c := s.connect(t, "")
	for _, nonce := range []string{"", someNonce[1:], someNonce + "0", strings.Repeat("x", 64),
		strings.Repeat("x", 256), someNonce[1:] + "\n"} {
		if got := ask(t, c, offer(t, "nonces", goodKey(t), nonce)); got != "bad load" {
			t.Errorf("nonce of %d characters: got %v", len(nonce), got)
		}
	}
	equal(t, "key of the sender", keyState(t, s.m, "nonces"), "")
}

// lineBreaks: a stranger's id is code if a reactor has it unquoted. Such an id must not run a
// command as root.
func (s stranger) lineBreaks(t *testing.T) {
	c := s.connect(t, "")
	if got := ask(t, c, offer(t, "outsider", goodKey(t), someNonce)); got != true {
		t.Fatalf("outsider: got %v", got)
	}
	index := s.quiet(t)
	for _, end := range []string{"\n", "\r", "\r\n", "\u0085", "\u2028", "\u2029"} {
		id := strings.ReplaceAll("ink1\nowned:\n  wheel.key.accept:\n    - match: outsider",
			"\n", end)
		if got := ask(t, c, offer(t, id, goodKey(t), someNonce)); got != false {
			t.Errorf("id with %q: got %v", end, got)
		}
	}
	s.unmoved(t, "applied index", index)
	// Reactions come in the order of events. So a later honest event proves that there was no
	// reaction.
	if got := ask(t, c, offer(t, "ink2", goodKey(t), someNonce)); got != true {
		t.Fatalf("ink2: got %v", got)
	}
	e2e.Eventually(t, healed, "the reactor accepts ink2", func() error {
		if state := keyState(t, s.m, "ink2"); state != "minions" {
			return fmt.Errorf("is in %q", state)
		}
		return nil
	})
	equal(t, "the list of outsider", keyState(t, s.m, "outsider"), "minions_pre")
	if r := s.m.Key(t, "-d", "*", "-y", "--rotate-aes-key=False"); r.Code != 0 {
		t.Errorf("%v", r)
	}
}

// fullList: offers to a full list are answered from memory. Each source has its own share, also
// behind a balancer.
func (s stranger) fullList(t *testing.T) {
	pub := goodKey(t)
	fill := func(c *transport.RequestClient, prefix string, n int, want any) {
		t.Helper()
		for i := range n {
			if got := ask(t, c, offer(t, fmt.Sprintf("%s-%d", prefix, i), pub,
				someNonce)); got != want {
				t.Fatalf("%s-%d: got %v, want %v", prefix, i, got, want)
			}
		}
	}
	own := s.connect(t, "")
	fill(own, "own", maxPerSource, true)
	first, network := s.connect(t, "203.0.113.1"), s.connect(t, "2001:db8:0:1::1")
	fill(first, "first", maxPerSource, true)
	index := s.quiet(t)
	fill(own, "own-more", 200, "full")
	fill(first, "first-more", 200, "full")
	fill(s.connect(t, "203.0.113.1"), "first-again", 20, "full")
	s.unmoved(t, "applied index after the sources' lists were full", index)
	fill(own, "own", maxPerSource, true) // a listed id is not refused because the list is full
	fill(network, "network", 10, true)
	fill(s.connect(t, "2001:db8:0:1:ffff::2"), "neighbour", 10, true)

	index = s.quiet(t)
	kept := metric(t, s.m, "clustermaster_keystore_unkept_total", `full="pending"`)
	for _, from := range []string{"", "203.0.113.1", "203.0.113.2", "2001:db8:0:2::1"} {
		fill(s.connect(t, from), "late", 200, "full")
	}
	s.unmoved(t, "applied index after the list was full", index)
	equal(t, "counted", metric(t, s.m, "clustermaster_keystore_unkept_total",
		`full="pending"`)-kept, 800.0)
	lists, err := s.m.Keys(t)
	if err != nil || len(lists["minions_pre"]) != maxPending {
		t.Errorf("%d keys are pending, %v", len(lists["minions_pre"]), err)
	}
	// A place that is free again can be taken by a source that has a share left.
	if r := s.m.Key(t, "-d", "first-*", "-y", "--rotate-aes-key=False"); r.Code != 0 {
		t.Errorf("%v", r)
	}
	fill(first, "first", 1, true)
}

// deniedKeys are endless new keys for an id that has another one.
func (s stranger) deniedKeys(t *testing.T) {
	c := s.connect(t, "")
	for _, id := range []string{"own-0", "own-1"} {
		if id == "own-0" {
			succeeds(t, s.m.Key(t, "-a", id, "-y"))
		}
		before := s.quiet(t)
		for i := range 8 {
			if got := ask(t, c, offer(t, id, madeKey(t, i), someNonce)); got != false {
				t.Errorf("%s, key %d: got %v", id, i, got)
			}
		}
		after := mark{s.applied(t), time.Now()}
		most := 8 + ofOthers(after.at.Sub(before.at))
		if n := after.index - before.index; n < 8 || n > most {
			t.Errorf("%v entries of the first eight keys of %s, want 8 to %v", n, id, most)
		}
		for i := range 200 {
			if got := ask(t, c, offer(t, id, madeKey(t, 8+i), someNonce)); got != false {
				t.Errorf("%s, key %d: got %v", id, 8+i, got)
			}
		}
		s.unmoved(t, "applied index after more keys of "+id, after)
	}
	equal(t, "the list of own-0", slices.Contains([]string{"minions", "minions_denied"},
		keyState(t, s.m, "own-0")), true)
}

// TestLongKeyLists: with all lists full, salt-key lists, shows and deletes in time and in pages.
func TestLongKeyLists(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t, 3, "")
	m := c.Masters[0]
	// As stored by a Salt master, which stores whatever strangers send.
	pending, rejected := 10_000, 300
	if long() {
		rejected = e2e.Amount(5000) // more than one message of the socket may have
	}
	dir := filepath.Join(m.Dir, "pki")
	for _, list := range []struct {
		name string
		n    int
		text string
	}{{"minions_pre", pending, goodKey(t)}, {"minions_rejected", rejected,
		goodKey(t) + strings.Repeat("junk\n", 12_000)}} {
		if err := os.MkdirAll(filepath.Join(dir, list.name), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range list.n {
			if err := os.WriteFile(filepath.Join(dir, list.name,
				fmt.Sprintf("%s-%d.example.com", list.name, i)), []byte(list.text),
				0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.StartMasters(t)
	e2e.Eventually(t, healed, "all keys are taken in", func() error {
		lists, err := m.Keys(t)
		if err == nil && (len(lists["minions_pre"]) != pending ||
			len(lists["minions_rejected"]) != rejected) {
			err = fmt.Errorf("%d and %d are there", len(lists["minions_pre"]),
				len(lists["minions_rejected"]))
		}
		return err
	})
	for _, words := range [][]string{{"-L"}, {"-L", "--out=json"}, {"-l", "pre"}} {
		r := m.Key(t, words...)
		if r.Code != 0 || r.Took > e2e.Within(2*time.Second) ||
			strings.Count(r.Stdout, "minions_pre-") != pending {
			t.Errorf("salt-key %v took %v, and ended with %d after %d lines\n%s", words, r.Took,
				r.Code, strings.Count(r.Stdout, "\n"), r.Stderr)
		}
	}
	if r := m.Key(t, "-P", "--out=json"); r.Code != 0 ||
		strings.Count(r.Stdout, "BEGIN PUBLIC KEY") < pending+rejected {
		t.Errorf("salt-key -P ended with %d after %d bytes: %s", r.Code, len(r.Stdout), r.Stderr)
	}
	began := time.Now()
	if r := m.Key(t, "-d", "minions_*", "-y"); r.Code != 0 ||
		strings.Count(r.Stdout, " deleted.") != pending+rejected {
		t.Errorf("salt-key -d ended with %d after %d lines: %s", r.Code,
			strings.Count(r.Stdout, "\n"), r.Stderr)
	}
	t.Logf("salt-key -d of all took %v", time.Since(began))
	if lists, err := m.Keys(t); err != nil ||
		len(lists["minions_pre"])+len(lists["minions_rejected"]) > 0 {
		t.Errorf("after -d there are %d and %d, %v", len(lists["minions_pre"]),
			len(lists["minions_rejected"]), err)
	}
}

// TestSignInFlood: strangers send sign-ins, and requests in the name of unknown minions, as fast as
// they get answers. Meanwhile the cluster works as usual.
func TestSignInFlood(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "max_pending_keys_per_source: 100\n")
	const known = 6
	startKnown(t, c, known)
	workers := make([]*minion, len(c.Masters))
	for i, m := range c.Masters {
		workers[i] = accepted(t, m, fmt.Sprintf("worker%d", i))
	}
	before, err := membersOf(t, c.Masters[0])
	if err != nil {
		t.Fatal(err)
	}
	flood := startFlood(t, c.Masters, 64)
	lasts := 8 * time.Second
	if long() {
		lasts = time.Minute
	}
	over, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	took := make([][]time.Duration, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() { took[i] = w.returns(over, t, c.Masters[i]) })
	}
	waited := 0.0
	var pings []time.Duration
	for n := 0; over.Err() == nil; n++ {
		m := c.Masters[n%len(c.Masters)]
		r := m.Salt(t, "--out=txt", "known*", "test.ping")
		if r.Code != 0 || strings.Count(r.Stdout, ": True") != known {
			t.Errorf("test.ping on %s took %v\n%v", m.ID, r.Took, r)
		}
		pings = append(pings, r.Took)
		waited += metric(t, m, "clustermaster_sign_ins_waiting", `who="strangers"`)
	}
	wg.Wait()
	answers := flood()
	returns := slices.Sorted(slices.Values(slices.Concat(took...)))
	if len(returns) < 50 || answers < 500 {
		t.Fatalf("only %d returns and %d sign-ins were answered", len(returns), answers)
	}
	slices.Sort(pings)
	// Not the slowest: the machine may stand still, for all workers at once.
	p90, ping := returns[len(returns)*90/100], pings[len(pings)/2]
	t.Logf("in %v: %d sign-ins of strangers, %d returns, p90 %v, slowest %v, test.ping in %v", lasts,
		answers, len(returns), p90, returns[len(returns)-1], pings)
	if p90 > e2e.Within(time.Second) || ping > e2e.Within(3*time.Second) {
		t.Errorf("p90 of _return is %v, the median of test.ping %v", p90, ping)
	}
	if waited == 0 {
		t.Error("no stranger ever waited for a processor")
	}
	after, err := membersOf(t, c.Masters[0])
	if err != nil {
		t.Error(err)
	}
	if after.Term != before.Term {
		t.Logf("the leader was %s in term %d, and is %s in term %d", before.Leader, before.Term,
			after.Leader, after.Term)
	}
}

// startKnown runs minions with accepted keys, spread over the masters.
func startKnown(t *testing.T, c *cluster, n int) {
	t.Helper()
	private, err := minionKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := simminion.KeyOf(private)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	var all []*simminion.Minion
	for i := range n {
		id := fmt.Sprintf("known%d", i)
		m, err := simminion.New(simminion.Config{
			ID: id, Key: key, Master: hostPort(c.Masters[i%len(c.Masters)], e2e.RequestPort),
			AcceptanceWait: 200 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		wg.Go(func() { _ = m.Run(ctx) })
	}
	m := c.Masters[0]
	e2e.Eventually(t, healed, "all minions are pending", func() error {
		lists, err := m.Keys(t)
		if err == nil && len(lists["minions_pre"]) != n {
			err = fmt.Errorf("%d are", len(lists["minions_pre"]))
		}
		return err
	})
	succeeds(t, m.Key(t, "-A", "-y"))
	for _, m := range all {
		select {
		case <-m.Ready():
		case <-time.After(healed):
			t.Fatalf("%s does not come", m.ID())
		}
	}
}

// sealedBy is a request of a minion that has no key.
func sealedBy(t *testing.T, id string) []byte {
	t.Helper()
	packed, err := value.Pack(value.Map{{Key: "enc", Value: "aes"}, {Key: "version", Value: 3},
		{Key: "id", Value: id}, {Key: "load", Value: make([]byte, 128)}})
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// startFlood loops sign-ins of unknown keys on several connections. end stops it and returns how
// many were answered.
func startFlood(t *testing.T, masters []*e2e.Master, connections int) (end func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var answers atomic.Int64
	var wg sync.WaitGroup
	end = sync.OnceValue(func() int64 { cancel(); wg.Wait(); return answers.Load() })
	t.Cleanup(func() { end() })
	for i := range connections {
		c := stranger{m: masters[i%len(masters)]}.connect(t, "")
		payloads := make([][]byte, 50)
		for n := range payloads {
			id := fmt.Sprintf("flood-%d-%d", i, n)
			if n%5 == 0 {
				// it has another key: the leader is asked before that is answered
				id = fmt.Sprintf("known%d", i%2)
			}
			payloads[n] = offer(t, id, madeKey(t, n), someNonce)
			if n%5 == 1 { // the leader is asked whether another master has accepted it
				payloads[n] = sealedBy(t, id)
			}
		}
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if _, err := c.Do(ctx, payloads[n%len(payloads)]); err != nil {
					if ctx.Err() == nil {
						t.Errorf("a stranger's sign-in: %v", err)
					}
					return
				}
				answers.Add(1)
			}
		})
	}
	return end
}

// returns sends returns of its own jobs, one after the other, until ctx ends. took is the time of
// each.
func (m *minion) returns(ctx context.Context, t *testing.T, at *e2e.Master) (took []time.Duration) {
	c, err := transport.DialRequests(ctx, hostPort(at, e2e.RequestPort), transport.ClientOptions{})
	if err != nil {
		t.Error(err)
		return nil
	}
	defer c.Close()
	crypt := wire.NewCrypticle(m.answer.Session)
	for n := 0; ; n++ {
		nonce, err := wire.NewNonce()
		if err != nil {
			t.Error(err)
			return took
		}
		began := time.Now()
		packed, err := m.sender.SealRequest(crypt, value.Map{
			{Key: "cmd", Value: "_return"}, {Key: "id", Value: m.id}, {Key: "success", Value: true},
			{Key: "return", Value: true}, {Key: "retcode", Value: 0},
			{Key: "jid", Value: began.UTC().Format("20060102150405") +
				fmt.Sprintf("%06d", began.Nanosecond()/1000)}, {Key: "fun", Value: "test.ping"},
			{Key: "fun_args", Value: []any{}},
		}, nonce, began)
		if err != nil {
			t.Error(err)
			return took
		}
		reply, err := c.Do(ctx, packed)
		if ctx.Err() != nil {
			return took
		}
		if err == nil {
			_, err = wire.OpenReply(crypt, reply, nonce)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, return %d: %v", m.id, n, err)
			return took
		}
		took = append(took, time.Since(began))
	}
}
