package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// attacked is the master of an accepted minion that an attacker took over.
var attacked = variant{name: "attacked", options: `minimum_auth_version: 0
legacy_minions: ['ok-old*']
autosign_file: DIR/autosign.conf
peer: {'.*': [test.ping]}
order_masters: True
syndics: ['ok-syndic*']
ext_pillar:
  - cmd_yaml: 'echo said: %s'
`, files: map[string]string{"autosign.conf": "ok-*\n"}}

// rationed keeps little for each minion.
var rationed = variant{name: "rationed", options: `autosign_file: DIR/autosign.conf
file_recv: True
file_recv_max_daily: 1
minion_jobs_max_hourly: 5
minion_mine_max_size: 1024
minion_pillarenvs_max: 2
`, files: map[string]string{"autosign.conf": "ok-*\n"}}

// hoarded stores little for each minion, and for all.
var hoarded = variant{name: "hoarded", options: `autosign_file: DIR/autosign.conf
file_recv: True
file_recv_max_stored: 1
file_recv_max_stored_total: 2
minion_jobs_max_stored: 1
minion_jobs_max_stored_total: 2
`, files: map[string]string{"autosign.conf": "ok-*\n"}}

// TestMinionAttacks has an accepted minion attack a running master. The other minions, root's jobs
// and the master itself stay as they were.
func TestMinionAttacks(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	for _, l := range []line{
		{"returns", attacked, ours, testForgedReturns},
		{"syndic", attacked, ours, testSyndic},
		{"events", attacked, ours, testForgedEvents},
		{"without_token", attacked, ours, testWithoutToken},
		{"commands_by_id", attacked, ours, testCommandsByID},
		{"heavy_targets", attacked, ours, testHeavyTargets},
		{"quotas", rationed, ours, testQuotas},
		{"stored", hoarded, ours, testStored},
	} {
		s.each(l)
	}
}

// order publishes a job of root and returns its id.
func order(t *testing.T, m *subject, tgt string) string {
	t.Helper()
	r := m.Salt(t, "--async", "-L", tgt, "test.arg", "of root")
	_, jid, found := strings.Cut(r.Stdout, "job ID: ")
	if jid = strings.TrimSpace(jid); !found || !wire.IsJID(jid) {
		t.Fatalf("no job\n%v", r)
	}
	return jid
}

// keptOf is what is stored about a job: the returns, the function, and who ordered it.
func keptOf(t *testing.T, m *subject, jid string) (returns map[string]any, function, user string) {
	t.Helper()
	if err := m.RunnerJSON(t, &returns, "jobs.lookup_jid", jid); err != nil {
		t.Fatal(err)
	}
	var job struct{ Function, User string }
	var jobs map[string]any
	if err := m.RunnerJSON(t, &jobs, "jobs.print_job", jid); err != nil {
		t.Fatal(err)
	}
	if entry, ok := jobs[jid].(map[string]any); ok {
		job.Function, _ = entry["Function"].(string)
		job.User, _ = entry["User"].(string)
	}
	return returns, job.Function, job.User
}

// untouched expects that root's job has exactly these returns.
func untouched(t *testing.T, m *subject, jid string, want map[string]string) {
	t.Helper()
	returns, function, user := keptOf(t, m, jid)
	for id, v := range want {
		if returns[id] != v {
			t.Errorf("return of %s is %v, want %q", id, returns[id], v)
		}
	}
	if len(returns) != len(want) || function != "test.arg" || !strings.Contains(user, "root") {
		t.Errorf("job %s: returns %v, function %q, user %q", jid, returns, function, user)
	}
}

// refusals expects that f is refused for a reason, counted and logged.
func refusals(t *testing.T, m *subject, reason string, n int, f func()) {
	t.Helper()
	name := `requests_refused_total{reason="` + reason + `"}`
	before := m.counters(t)[name]
	f()
	if got := m.counters(t)[name] - before; got != n {
		t.Errorf("%s: %d were counted, want %d", reason, got, n)
	}
	if log := string(readFile(t, m.Log)); !strings.Contains(log, "reason="+reason) {
		t.Errorf("%s: not in the log", reason)
	}
}

func testForgedReturns(t *testing.T, m *subject) {
	victim, thief := m.signIn(t, "ok-victim", 3), m.signIn(t, "ok-thief", 3)
	events := m.events
	if events == nil {
		events = listen(t, t, m)
	}
	jid := order(t, m, "ok-victim,ok-thief")
	mark := events.mark()
	ret := []value.Pair{pair("jid", jid), pair("fun", "cmd.run"), pair("fun_args", []any{}),
		pair("user", "thief"), pair("return", "forged"), pair("retcode", 0), pair("success", true)}
	refusals(t, m, "resource_return", 1, func() {
		thief.request(t, "_return", append(slices.Clone(ret), pair("resource_id", victim.ID))...)
	})
	refusals(t, m, "no_syndic", 1, func() {
		thief.request(t, "_syndic_return",
			pair("load", []any{dict("jid", jid, "id", "ok-thief", "fun", "cmd.run", "load",
				dict("fun", "cmd.run", "user", "thief", "jid", jid),
				"return", dict(victim.ID, dict("return", "forged", "retcode", int64(0))))}))
	})
	if got := show(t,
		m.send(t, thief.seal(t, thief.load(t, "_return", ret...).Set("id",
			victim.ID)))); got != badLoad {
		t.Errorf("under the victim's id: %s", got)
	}
	for _, c := range []*client{thief, victim} {
		c.request(t, "_return", value.Map(slices.Clone(ret)).Set("return", "own")...)
	}
	untouched(t, m, jid, map[string]string{"ok-victim": "own", "ok-thief": "own"})
	events.flush(t, m)
	for _, h := range events.since(mark,
		func(h happening) bool { return h.Data["return"] == "forged" }) {
		t.Errorf("event %v", h)
	}
}

func testSyndic(t *testing.T, m *subject) {
	victim, syndic := m.signIn(t, "ok-victim", 3), m.signIn(t, "ok-syndic-1", 3)
	jid := order(t, m, "ok-victim")
	refusals(t, m, "syndic_return", 1, func() {
		syndic.request(t, "_syndic_return",
			pair("load", []any{dict("jid", jid, "id", syndic.ID, "fun", "test.arg", "load",
				dict("fun", "cmd.run", "user", "syndic", "jid", jid),
				"return", dict(victim.ID, dict("return", "forged", "retcode", int64(0)), "below-1",
					dict("return", "below", "retcode", int64(0))))}))
	})
	victim.request(t, "_return", pair("jid", jid), pair("fun", "test.arg"), pair("return", "own"),
		pair("retcode", 0))
	untouched(t, m, jid, map[string]string{"ok-victim": "own", "below-1": "below"})
}

func testForgedEvents(t *testing.T, m *subject) {
	m.signIn(t, "ok-victim", 3)
	thief := m.signIn(t, "ok-thief", 3)
	events := m.events
	if events == nil {
		events = listen(t, t, m)
	}
	mark := events.mark()
	tags := []string{"salt/auth", "salt/minion/ok-victim/start", "salt/wheel/1/ret",
		"salt/presence/change", "salt/master/x/start", "salt/job/1/ret/ok-victim", "salt/key",
		"syndic/x/start"}
	refusals(t, m, "event_tag", 3*len(tags), func() {
		for _, tag := range tags {
			base, rest, _ := strings.Cut(tag, "/")
			thief.request(t, "_minion_event", pair("tag", tag), pair("data", "forged"))
			thief.request(t, "_minion_event",
				pair("events", []any{dict("tag", tag, "data", dict("data", "forged"))}))
			thief.request(t, "_minion_event", pair("pretag", base),
				pair("events",
					[]any{dict("tag", rest, "data", dict("data", "forged", "plain", true))}))
		}
	})
	// Listeners of Salt would read the reserved tag before the empty line.
	parted := []string{"salt/key\n\nforged", "salt/key\n"}
	refusals(t, m, "event_tag", 2*len(parted), func() {
		for _, tag := range parted {
			thief.request(t, "_minion_event", pair("tag", tag), pair("data", "forged"))
			thief.request(t, "_minion_event",
				pair("events", []any{dict("tag", tag, "data", dict("data", "forged"))}))
		}
	})
	thief.request(t, "_minion_event", pair("events",
		[]any{dict("tag", "salt/minion/ok-thief/start", "data",
			dict("id", "ok-victim", "data", "forged"))}))
	for _, tag := range []string{"salt/minion/ok-thief/start", "salt/beacon/ok-thief/load/",
		"own/tag"} {
		thief.request(t, "_minion_event", pair("tag", tag), pair("data", "honest"))
		events.wait(t, mark, 10*time.Second, tag, func(h happening) bool {
			return h.Tag == tag &&
				h.Data["data"] == "honest"
		})
	}
	events.flush(t, m)
	for _, h := range events.since(mark,
		func(h happening) bool { return h.Data["data"] == "forged" && h.Data["plain"] == nil }) {
		t.Errorf("event %v", h)
	}
	for _, h := range events.since(mark, func(h happening) bool {
		return slices.Contains(tags, h.Tag) && h.Data["plain"] != nil
	}) {
		t.Errorf("event %v", h)
	}
}

// testWithoutToken: below version 3 the AES key that all minions share does not prove an id.
func testWithoutToken(t *testing.T, m *subject) {
	victim := m.signIn(t, "ok-victim", 3)
	victim.request(t, "_mine", pair("data", dict("secret", "own")))
	thief := m.signIn(t, "ok-thief", 2)
	jid := order(t, m, "ok-victim")
	for name, tok := range map[string]any{"none": nil, "empty": []byte{},
		"another's": otherToken(t)} {
		for _, load := range []value.Map{
			thief.load(t, "_return", pair("jid", jid), pair("fun", "test.arg"),
				pair("return", "forged")), thief.load(t, "_mine_flush"),
			thief.load(t, "revoke_auth"),
			thief.load(t, "_minion_event", pair("tag", "own/tag"), pair("data", "forged")),
			thief.load(t, "_pillar", pair("grains", dict("os", "Plan9")), pair("ver", "2")),
		} {
			load = load.Set("id", victim.ID)
			if tok != nil {
				load = load.Set("tok", tok)
			}
			if got := show(t, m.send(t, thief.seal(t, load))); got != badLoad {
				t.Errorf("token %s, %s: %s", name, load.String("cmd"), got)
			}
		}
	}
	untouched(t, m, jid, map[string]string{})
	old := m.signIn(t, "ok-old", 2)
	for tok, served := range map[string]bool{"": true, string(otherToken(t)): false} {
		load := old.load(t, "_pillar", pair("grains", dict("os", "Plan9")), pair("ver", "2"),
			pair("id", old.ID))
		if tok != "" {
			load = load.Set("tok", []byte(tok))
		}
		if got := show(t, m.send(t, old.seal(t, load))); (got != badLoad) != served {
			t.Errorf("a legacy minion's pillar with token %q: %s", tok, got)
		}
	}
	if got := victim.request(t, "_mine_get", pair("tgt", victim.ID),
		pair("fun", "secret")); showValue(got) != "{ok-victim: own}" {
		t.Errorf("mine is %v", got)
	}
	e2e.Eventually(t, 10*time.Second, "the victim signs in with its key",
		func() error { return victim.auth(t) })
}

// testCommandsByID: a minion's id never becomes a command on the master.
func testCommandsByID(t *testing.T, m *subject) {
	master := m.masterKey(t)
	for id, want := range map[string]string{
		"ok-$(echo pwned)": "{said: ok-$(echo pwned)}",
		"ok-`echo pwned`":  "{said: ok-`echo pwned`}", "ok-|echo pwned": "{said: ok-|echo pwned}",
		"ok-;echo pwned":      "{said: ok-;echo pwned}",
		"ok-'; echo pwned; '": "{said: ok-'; echo pwned; '}",
		"ok-plain.1@x":        "{said: ok-plain.1@x}",
	} {
		c := m.signIn(t, id, 3)
		load := c.pillarLoad(t)
		v, err := wire.OpenPrivate(c.Key, master, c.sender(), m.send(t, c.seal(t, load)), "pillar",
			load.String("nonce"))
		if err != nil || showRaw(v) != want {
			t.Errorf("%s: %s, %v", id, showRaw(v), err)
		}
	}
}

// processorTime is the time that a master's process has used.
func processorTime(t *testing.T, m *subject) time.Duration {
	t.Helper()
	stat := string(readFile(t, fmt.Sprintf("/proc/%d/stat", m.PID())))
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// testHeavyTargets: the searches that a minion may cause on the master are bounded, and others are
// served meanwhile.
func testHeavyTargets(t *testing.T, m *subject) {
	long := "ok-" + strings.Repeat("a", 60) + "!"
	victim, thief := m.signIn(t, "ok-victim", 3), m.signIn(t, long, 3)
	for _, c := range []*client{victim, thief} {
		m.send(t, c.seal(t, c.pillarLoad(t)))
		c.request(t, "_mine", pair("data", dict("own", c.ID)))
	}
	const endless = "ok-(?=a)(a+)+$"
	many := func(word string) string {
		return strings.TrimSuffix(strings.Repeat(word+" or ",
			20_000), " or ")
	}
	var some []string
	for i := range 400 {
		some = append(some, fmt.Sprintf("E@%s%d", endless, i))
	}
	heavy := []value.Map{
		dict("tgt", many("ok-*"), "tgt_type", "compound"), dict("tgt", endless, "tgt_type", "pcre"),
		dict("tgt", "id:"+endless, "tgt_type", "grain_pcre"),
		dict("tgt", "not P@id:"+endless, "tgt_type", "compound"),
		dict("tgt", strings.Join(some, " or "), "tgt_type", "compound"),
	}
	refusals := func() int {
		all := m.counters(t)
		return all[`requests_refused_total{reason="target_cost"}`] +
			all[`requests_refused_total{reason="busy_targets"}`]
	}
	refused, used := refusals(), processorTime(t, m)
	replies := make(chan string, 2*len(heavy))
	for _, load := range heavy {
		for _, full := range []value.Map{
			thief.load(t, "_mine_get", append(slices.Clone(load), pair("fun", "own"))...),
			thief.load(t, "minion_pub", append(slices.Clone(load), pair("fun", "test.ping"),
				pair("arg", []any{}), pair("ret", ""))...),
		} {
			payload := thief.seal(t, full)
			go func() {
				reply, err := exchange(t, m.Addr, payload, time.Minute)
				v, errOpen := thief.open(reply, full)
				replies <- fmt.Sprintf("%s of %.60s: %s %v", full.String("cmd"), full.String("tgt"),
					showValue(v), errors.Join(err, errOpen))
			}()
		}
	}
	for range 5 {
		watch := e2e.StartWatch(t)
		if got := showValue(victim.request(t, "_master_opts",
			pair("env_only", true))); !strings.Contains(got, "file_roots") ||
			watch.Took() > e2e.Within(3*time.Second) {
			t.Errorf("another minion waits %v for %s", watch.Took(), got)
		}
	}
	for range 2 * len(heavy) {
		r := <-replies
		// A mine that could not be read for want of a turn has no reply: {} would be an empty one.
		unread := strings.HasPrefix(r, "_mine_get of ") && strings.Contains(r, " connection closed: ")
		if !strings.HasSuffix(r, ": {} <nil>") && !strings.HasSuffix(r, ":  <nil>") && !unread {
			t.Error(r)
		}
	}
	if took := processorTime(t, m) - used; took > e2e.Within(time.Duration(2*len(heavy))*2*time.Second) {
		t.Errorf("the master worked for %v", took)
	}
	if n := refusals() - refused; n != 2*len(heavy) {
		t.Errorf("%d refusals were counted", n)
	}
	if got := showValue(victim.request(t, "_mine_get", pair("tgt", "ok-v*"),
		pair("fun", "own"))); got != "{ok-victim: ok-victim}" {
		t.Errorf("honest _mine_get: %s", got)
	}
}

// testQuotas: a minion that fills the masters is refused, and others are not.
func testQuotas(t *testing.T, m *subject) {
	greedy, modest := m.signIn(t, "ok-greedy", 3), m.signIn(t, "ok-modest", 3)
	ok := func(what string, got any, want string) {
		t.Helper()
		if showValue(got) != want {
			t.Errorf("%s: %s, want %s", what, showValue(got), want)
		}
	}
	piece := strings.Repeat("x", 400_000)
	push := func(c *client, name string) any {
		return c.request(t, "_file_recv", pair("path", []any{name}), pair("loc", 0),
			pair("data", []byte(piece)), pair("size", len(piece)))
	}
	mine := func(c *client, fun string) any {
		return c.request(t, "_mine",
			pair("data", dict(fun, piece[:600])))
	}
	job := func(c *client) any {
		return c.request(t, "_return", pair("jid", "req"), pair("fun", "test.ping"),
			pair("return", true), pair("retcode", 0))
	}
	refusals(t, m, "quota_files", 1, func() {
		ok("file 1", push(greedy, "1"), "true")
		ok("file 2", push(greedy, "2"), "true")
		ok("file 3", push(greedy, "3"), "false")
		ok("file of another", push(modest, "1"), "true")
	})
	refusals(t, m, "quota_mine", 1, func() {
		ok("mine", mine(greedy, "a"), "true")
		ok("the same again", mine(greedy, "a"), "true")
		ok("more mine", mine(greedy, "b"), "false")
		ok("mine of another", mine(modest, "b"), "true")
	})
	ok("what is kept", greedy.request(t, "_mine_get", pair("tgt", "*"), pair("fun", "b")),
		"{ok-modest: "+piece[:600]+"}")
	refusals(t, m, "quota_jobs", 2, func() {
		for range 5 {
			ok("job", job(greedy), "<nil>")
		}
		ok("job 6", job(greedy), "false")
		ok("job 7", job(greedy), "false")
		ok("job of another", job(modest), "<nil>")
	})
	refusals(t, m, "quota_pillarenv", 1, func() {
		for _, env := range []string{"a", "b", "c", "a"} {
			if got := show(t,
				m.send(t, greedy.seal(t,
					greedy.pillarLoad(t).Set("pillarenv", env)))); !strings.Contains(got, "key") {
				t.Errorf("pillar of %s: %s", env, got)
			}
		}
	})
}

// testStored: the storage for pushed files, and for jobs that nobody published, is bounded per
// minion and for all minions. What was stored stays, and an operator makes room.
func testStored(t *testing.T, m *subject) {
	piece := strings.Repeat("x", 600_000)
	push := func(c *client, name string) string {
		return showValue(c.request(t, "_file_recv", pair("path", []any{name}), pair("loc", 0),
			pair("data", []byte(piece)), pair("size", len(piece))))
	}
	job := func(c *client, jid string) string {
		return showValue(c.request(t, "_return", pair("jid", jid), pair("fun", "test.arg"),
			pair("return", piece), pair("retcode", 0)))
	}
	minions := map[string]*client{}
	for _, id := range []string{"ok-greedy", "ok-second", "ok-third", "ok-fourth"} {
		minions[id] = m.signIn(t, id, 3)
	}
	own := wire.JID(time.Now())
	for what, store := range map[string]func(c *client, n int) string{
		"files": func(c *client, n int) string { return push(c, strconv.Itoa(n)) },
		"jobs": func(c *client, n int) string {
			jid := "req"
			if n == 1 {
				jid = own + c.ID // as salt-call makes its own ids
			}
			if got := job(c, jid); got != "<nil>" {
				return got
			}
			return "true"
		},
	} {
		refusals(t, m, "quota_"+what+"_stored", 1, func() {
			if first, second := store(minions["ok-greedy"], 1), store(minions["ok-greedy"],
				2); first != "true" || second != "false" {
				t.Errorf("%s of one: %s, %s", what, first, second)
			}
		})
		refusals(t, m, "quota_"+what+"_total", 1, func() {
			for id, want := range map[string]string{"ok-second": "true", "ok-third": "true"} {
				if got := store(minions[id], 1); got != want {
					t.Errorf("%s of %s: %s", what, id, got)
				}
			}
			if got := store(minions["ok-fourth"], 1); got != "false" {
				t.Errorf("%s beyond what all may: %s", what, got)
			}
		})
	}
	jid := order(t, m, "ok-greedy,ok-fourth")
	for _, id := range []string{"ok-greedy", "ok-fourth"} {
		if got := job(minions[id], jid); got != "<nil>" {
			t.Errorf("%s returns for root's job: %s", id, got)
		}
	}
	if returns, _, _ := keptOf(t, m, jid); len(returns) != 2 {
		t.Errorf("%d returns of root's job", len(returns))
	}
	var deleted any
	if err := m.RunnerJSON(t, &deleted, "pushed.delete", "ok-second", "1"); err != nil {
		t.Error(err)
	}
	e2e.Eventually(t, 15*time.Second, "there is room again", func() error {
		if got := push(minions["ok-fourth"], "2"); got != "true" {
			return errors.New(got)
		}
		return nil
	})
}
