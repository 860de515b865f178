package conformance

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// signing is the variant signer with other options.
func signing(options string) variant {
	v := signer
	v.options = strings.Replace(v.options, "SIGNING\n", options, 1)
	return v
}

// testPending is line 46: a pending key is accepted, and the minion's next attempt signs it in.
func (s *suite) testPending(t *testing.T) {
	c := s.minions(t)
	for _, m := range c.new {
		e2e.Eventually(t, 90*time.Second, m.ID+" is pending", func() error {
			if got := c.busy.folders(t, m.ID); got != "minions_pre" {
				return fmt.Errorf("its key is in %q", got)
			}
			return nil
		})
	}
	mark := c.events.mark()
	c.busy.changeKey(t, "-a", "minion-*")
	watch := e2e.StartWatch(t)
	for _, m := range c.new {
		c.events.wait(t, mark, 20*time.Second, m.ID+" is accepted", func(h happening) bool {
			return auth(m.ID)(h) && h.Data["act"] == "accept"
		})
	}
	// acceptance_wait_time is 1 s.
	if after := watch.Took(); after > e2e.Within(4*time.Second) {
		t.Errorf("signed in %v after salt-key ended", after)
	}
	for _, m := range c.new {
		c.events.wait(t, mark, 60*time.Second, m.ID+" has started",
			func(h happening) bool { return h.Tag == "salt/minion/"+m.ID+"/start" })
	}
}

// testForeignMasterKey is line 47.
func (s *suite) testForeignMasterKey(t *testing.T) {
	c := s.minions(t)
	for _, m := range c.foreign {
		m.WaitFor(t, 90*time.Second, 0, "The master key has changed")
		if n := m.SignIns(t, 0); n > 1 { // logged before the key is compared
			t.Errorf("%s signed in %d times", m.ID, n)
		}
	}
	if list := c.events.since(0, func(h happening) bool {
		return strings.HasPrefix(h.Tag,
			"salt/minion/ok-foreign")
	}); len(list) > 0 {
		t.Errorf("%v", list)
	}
	if err := answered(t, c.busy, c.new); err != nil {
		t.Errorf("the others: %v", err)
	}
}

// testVerify is line 48. Every other minion is the fourth case.
func (s *suite) testVerify(t *testing.T) {
	c := s.minions(t)
	both, verifies, signs := c.verifying[0], c.verifying[1], c.verifying[2]
	verifies.WaitFor(t, 90*time.Second, 0, "The master did not send its public-key signature")
	signs.WaitFor(t, 90*time.Second, 0, "verification is not enabled on the minion")
	m := s.master(t, real(), open)
	e2e.Eventually(t, 60*time.Second, "the one that verifies answers",
		func() error { return pinged(t, m, []string{both.ID}) })
	both.WaitFor(t, time.Second, 0, "Received signed and verified master pubkey")
	for _, m := range []*member{verifies, signs} {
		if strings.Contains(m.LogSince(t, 0), "Minion is ready to receive requests") {
			t.Errorf("%s is ready", m.ID)
		}
	}
}

// testRejected is line 49. Minions of 3008.3 lose the exit code on their way out, also with Salt's
// master.
func (s *suite) testRejected(t *testing.T) {
	for _, m := range s.minions(t).rejected {
		want := 77
		if strings.HasPrefix(m.Release, "3008") {
			want = 0
		}
		if code, err := m.Wait(90 * time.Second); err != nil || code != want {
			t.Errorf("%s ended with %d, %v; want %d", m.ID, code, err, want)
		}
		m.WaitFor(t, time.Second, 0, "The Salt Master has rejected this minion's public key")
	}
}

// testReleases is line 50.
func (s *suite) testReleases(t *testing.T) {
	c := s.minions(t)
	if err := answered(t, c.busy, c.new); err != nil {
		t.Error(err)
	}
}

// afterLostReply is how long a legacy minion may take to answer: one of 3006.0 that lost the reply
// to a request waits a minute for it before it sends another request.
const afterLostReply = 90 * time.Second

func (s *suite) testLegacyReleases(t *testing.T) {
	c := s.minions(t)
	if len(c.old) < len(legacy) {
		t.Skip("needs salt 3006.0, 3006.9 and 3007.1 in CLUSTERMASTER_SALT_VENVS; run make test-long")
	}
	e2e.Eventually(t, 60*time.Second, "legacy minions answer",
		func() error { return pinged(t, c.busy, ids(c.old)) })
	want := map[string]any{}
	for _, m := range c.old {
		want[m.ID] = m.Release
	}
	if got, r := call(t, c.busy, ids(c.old), "test.version"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("want %v\n%v", want, r)
	}
	got, r := call(t, c.busy, ids(c.old), "pillar.items")
	for _, m := range c.old {
		if fmt.Sprint(got[m.ID]) != "map[]" {
			t.Errorf("pillar of %s\n%v", m.ID, r)
		}
	}
}

// all are the minions of the busy master.
func (c *crowd) all() []*member { return slices.Concat(c.new, c.old) }

// open are the jobs that some minion has neither returned nor lost.
func (c *crowd) open(t testing.TB, jids []string) (open []string) {
	for _, jid := range jids {
		got := c.events.returns(jid)
		if slices.ContainsFunc(c.all(), func(m *member) bool {
			return got[m.ID] == 0 && !m.lost(t)[jid]
		}) {
			open = append(open, jid)
		}
	}
	return open
}

// testRestart is line 51: the first job after a restart reaches all minions, also those that had
// connected but not subscribed yet. How soon depends on the machine, so the client's time limit is
// no measure. Package e2e tests that no minion signs in without need.
func (s *suite) testRestart(t *testing.T) {
	c := s.minions(t)
	connected(t, c.all(), 60*time.Second)
	began := make([]int64, len(c.new))
	for i, m := range c.new {
		began[i] = int64(len(m.LogSince(t, 0)))
	}
	if code, took := c.busy.Stop(t, 20*time.Second); code != 0 {
		t.Errorf("ended with %d after %v", code, took)
	}
	c.busy.events = nil // they ended with the process
	c.busy.start(t)
	c.events = s.listen(t, c.busy)
	connected(t, c.all(), 30*time.Second)
	jid := publish(t, c.busy.Master, "-L", strings.Join(ids(c.new), ","), "test.ping")
	t.Cleanup(func() {
		for i, m := range c.new {
			if got := c.events.returns(jid); t.Failed() && got[m.ID] == 0 {
				t.Logf("%s since the restart:\n%s", m.ID, m.LogSince(t, began[i]))
			}
		}
	})
	// A minion that just then finds itself cut off, by its own check of its connections, drops the
	// return and says so. The job has reached it.
	e2e.Eventually(t, 90*time.Second, "returns of "+jid, func() error {
		got := c.events.returns(jid)
		for i, m := range c.new {
			if got[m.ID] == 0 && !strings.Contains(m.LogSince(t, began[i]),
				"cannot return data for job "+jid) {
				return fmt.Errorf("only %v", got)
			}
		}
		return nil
	})
	e2e.Eventually(t, afterLostReply, "legacy minions answer",
		func() error { return pinged(t, c.busy, ids(c.old)) })
}

// testSessionReplaced is line 52: the key of a session changes while a job runs, here because the
// minion's key is deleted and accepted again.
func (s *suite) testSessionReplaced(t *testing.T) {
	c := s.minions(t)
	for _, m := range c.new {
		c.busy.appendTo(t, "autosign.conf", m.ID)
	}
	jid := publish(t, c.busy.Master, "-L", strings.Join(ids(c.new), ","), "test.sleep", "4")
	for _, m := range c.new {
		m.WaitFor(t, 10*time.Second, 0, jid)
	}
	watch := e2e.StartWatch(t)
	if c.busy.salt() {
		for _, m := range c.new {
			if err := os.Remove(c.busy.path("cache", "sessions", m.ID)); err != nil {
				t.Fatal(err)
			}
		}
	} else {
		c.busy.changeKey(t, "-d", "minion-*")
	}
	e2e.Eventually(t, 15*time.Second, "returns", func() error {
		if got := c.events.returns(jid); len(got) < len(c.new) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if took := watch.Took(); took > e2e.Within(4*time.Second+3*time.Second+time.Second) {
		t.Errorf("returns took %v", took)
	}
	if err := answered(t, c.busy, c.new); err != nil {
		t.Error(err)
	}
	for id, n := range c.events.returns(jid) {
		if n != 1 {
			t.Errorf("%s returned %d times", id, n)
		}
	}
}

// testRotation is line 53: the AES key changes several times while ten jobs a second are published,
// or fewer, so that no more than a few are under way: a minion too busy to read an answer gives up
// the return.
func (s *suite) testRotation(t *testing.T) {
	c := s.minions(t)
	const jobs, rotations, most = 40, 3, 3
	for n := range rotations {
		c.busy.signIn(t, fmt.Sprintf("ok-dummy-%d", n), 3)
	}
	before := c.busy.signIn(t, "ok-53", 3).got.AES
	rotated := make(chan error, 1)
	go func() {
		for n := range rotations {
			r := e2e.Command(t, programs(t, c.busy.kind).Key, "-c", c.busy.ConfDir, "-y", "-d",
				fmt.Sprintf("ok-dummy-%d", n))
			if r.Code != 0 {
				rotated <- fmt.Errorf("%v", r)
				return
			}
			<-time.After(time.Second)
		}
		rotated <- nil
	}()
	var jids []string
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := range jobs {
		jids = append(jids, publish(t, c.busy.Master, "-L", strings.Join(ids(c.all()), ","),
			"test.echo", fmt.Sprint(n)))
		e2e.Eventually(t, 30*time.Second, "jobs return", func() error {
			if open := c.open(t, jids); len(open) > most {
				return fmt.Errorf("%d are under way, among them %s", len(open), open[0])
			}
			return nil
		})
		<-tick.C
	}
	if err := <-rotated; err != nil {
		t.Fatal(err)
	}
	if c.busy.signIn(t, "ok-53", 3).got.AES == before {
		t.Error("the AES key is the same")
	}
	e2e.Eventually(t, 30*time.Second, "all returns", func() error {
		if open := c.open(t, jids); len(open) > 0 {
			return fmt.Errorf("job %s: %v", open[0], c.events.returns(open[0]))
		}
		return nil
	})
	// A minion of version 2 that has signed in again can't read the answer to a return that it
	// sealed before, and sends the return again. So does any minion too busy to read the answer
	// within return_retry_timer, 5 s. A duplicate caused by a master would come at once.
	for _, jid := range jids {
		for _, m := range c.new {
			returns := c.events.since(0, func(h happening) bool {
				return h.Tag == "salt/job/"+jid+"/ret/"+m.ID
			})
			for n := 1; n < len(returns); n++ {
				if gap := returns[n].stamp(t).Sub(returns[n-1].stamp(t)); gap < 2*time.Second {
					t.Errorf("job %s: %s returned again after %v: %v", jid, m.ID, gap, returns)
				}
			}
		}
	}
	for _, m := range c.all() {
		log, lost := m.LogSince(t, 0), m.lost(t)
		for _, jid := range jids {
			if lost[jid] {
				continue
			}
			if n := strings.Count(log, "Returning information for job: "+jid); n != 1 {
				t.Errorf("%s ran job %s %d times", m.ID, jid, n)
			}
		}
	}
}

// testDeletedKey is line 54.
func (s *suite) testDeletedKey(t *testing.T) {
	c := s.minions(t)
	gone, stays := c.busy.signIn(t, "ok-54-gone", 3), c.busy.signIn(t, "ok-54-stays", 3)
	c.busy.changeKey(t, "-d", gone.ID)
	if c.busy.salt() { // its maintenance runs every loop_interval
		e2e.Eventually(t, 20*time.Second, "rotation", func() error {
			if c.busy.signIn(t, stays.ID, 3).got.AES == gone.got.AES {
				return fmt.Errorf("same key")
			}
			return nil
		})
	}
	sub := subscribe(t, c.busy.Addr, "")
	jid := publish(t, c.busy.Master, "-L", stays.ID, "test.ping")
	frames := sub.next(t, 5*time.Second)
	outer := unpack(t, frames[0]).(value.Map)
	if _, err := wire.NewCrypticle(gone.got.AES).Open(outer.Bytes("load")); err == nil {
		t.Error("the deleted minion reads the publication")
	}
	again := c.busy.signIn(t, stays.ID, 3)
	if _, load := published(t, again.got.AES, frames[0]); load.String("jid") != jid {
		t.Errorf("the other one reads %v", load)
	}
	if got := show(t, c.busy.send(t, gone.seal(t, gone.load(t, "nosuch")))); got != badLoad {
		t.Errorf("a request of the deleted minion: %s", got)
	}
}

// testDropFile: a file in cachedir asks for another AES key, as programs of Salt's do.
func (s *suite) testDropFile(t *testing.T) {
	m := s.minions(t).busy
	before := m.signIn(t, "ok-54-dropped", 3).got.AES
	path := m.path("cache", ".dfn")
	if err := os.WriteFile(path, []byte(m.ID), 0o400); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, 20*time.Second, "rotation", func() error {
		if _, err := os.Stat(path); err == nil {
			return errors.New("the file is still there")
		}
		if m.signIn(t, "ok-54-dropped", 3).got.AES == before {
			return errors.New("the AES key is the same")
		}
		return nil
	})
}

// testSignedPublications is line 59.
func (s *suite) testSignedPublications(t *testing.T) {
	c := s.minions(t)
	who := ids(c.signed)
	first := c.signer.Config(t)
	for _, tt := range []struct {
		options string
		heard   bool
	}{
		{"publish_signing_algorithm: PKCS1v15-SHA1\n", true},
		{"publish_signing_algorithm: PKCS1v15-SHA224\n", true},
		{"sign_pub_messages: False\n", false},
	} {
		c.signer.Configure(t, first+tt.options)
		if code, took := c.signer.Stop(t, 20*time.Second); code != 0 {
			t.Fatalf("ended with %d after %v", code, took)
		}
		offsets := map[*member]int64{}
		for _, m := range c.signed {
			offsets[m] = m.LogSize()
		}
		c.signer.start(t)
		connected(t, c.signed, 60*time.Second)
		if tt.heard {
			e2e.Eventually(t, 60*time.Second, tt.options+" answers",
				func() error { return pinged(t, c.signer, who) })
			continue
		}
		publish(t, c.signer.Master, "-L", strings.Join(who, ","), "test.ping")
		for _, m := range c.signed {
			e2e.Eventually(t, 30*time.Second, m.ID+" refuses", func() error {
				if !strings.Contains(m.LogSince(t, offsets[m]), "ignature") {
					publish(t, c.signer.Master, "-L", strings.Join(who, ","), "test.ping")
					return fmt.Errorf("not yet")
				}
				return nil
			})
			if strings.Contains(m.LogSince(t, offsets[m]), "Executing command test.ping") {
				t.Errorf("%s runs an unsigned job", m.ID)
			}
		}
	}
}

// testFilteringMinions is line 61.
func (s *suite) testFilteringMinions(t *testing.T) {
	c := s.minions(t)
	m := s.master(t, real(), strict)
	who := ids(c.filtering)
	e2e.Eventually(t, 60*time.Second, "minions with zmq_filtering answer",
		func() error { return pinged(t, m, who) })
	for _, target := range [][]string{{"ok-61-*"}, {"-E", "ok-61-.*"}, {"-G", "e2e:300*"}} {
		got, r := callTarget(t, m, append(target, "test.ping")...)
		for _, id := range who {
			if got[id] != true {
				t.Errorf("%v\n%v", target, r)
				break
			}
		}
	}
}

// testStartOrder is line 62: what a minion did from its first connection to its start event, as the
// master's events and the relay saw it.
func (s *suite) testStartOrder(t *testing.T) {
	c := s.minions(t)
	for _, m := range c.all() {
		want := []string{"signed in", "pillar", "minion_start", "start"}
		if strings.HasPrefix(m.Release, "3008") {
			want = []string{"signed in", "pillar", "minion_start", "resources", "start"}
		}
		e2e.Eventually(t, 30*time.Second, m.ID+" starts in order", func() error {
			var got []string
			for _, h := range c.events.since(0, func(happening) bool { return true }) {
				if step := startStep(h, m.ID); step != "" && !slices.Contains(got, step) {
					got = append(got, step)
				}
			}
			if slices.Contains(c.old, m) { // they send the two start events side by side
				slices.Sort(got)
				slices.Sort(want)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("%q, want %q", got, want)
			}
			return nil
		})
		// The probe that sends nothing, sign-in, publications, long-lived requests, pillar. A
		// minion that waited for acceptance opens no more.
		ports := m.relay.ports()
		if len(ports) >= 5 { // connections at the same moment come in either order
			ports = ports[:5]
			slices.Sort(ports[2:])
		}
		if want := []int{-e2e.RequestPort, e2e.RequestPort, e2e.PublishPort, e2e.RequestPort,
			e2e.RequestPort}; !slices.Equal(ports, want) {
			t.Errorf("%s: connections %v, want %v first", m.ID, ports, want)
		}
	}
}

// startStep names an event of a minion's start.
func startStep(h happening, id string) string {
	switch {
	case auth(id)(h) && h.Data["act"] == "accept":
		return "signed in"
	case h.Tag == "minion/refresh/"+id:
		return "pillar"
	case h.Tag == "minion_start" && h.Data["id"] == id:
		return "minion_start"
	case h.Tag == "resource/refresh/"+id:
		return "resources"
	case h.Tag == "salt/minion/"+id+"/start":
		return "start"
	}
	return ""
}

// testPings is line 63. Long runs use the line's own interval of a minute.
func (s *suite) testPings(t *testing.T) {
	c := s.minions(t)
	mark := c.events.mark()
	for _, m := range c.all() {
		c.events.wait(t, mark, 100*time.Second, m.ID+" pings",
			func(h happening) bool { return h.Tag == "minion_ping" && h.Data["id"] == m.ID })
	}
}

// looked is what a minion logs when the job of master_alive_interval has ended.
var looked = regexp.MustCompile(`Subprocess Schedule\(name=__master_alive.* cleaned up`)

// testAlive is line 64, with master_alive_interval 5.
func (s *suite) testAlive(t *testing.T) {
	c := s.minions(t)
	connected(t, c.all(), 60*time.Second)
	for _, m := range c.all() {
		// A minion of 3007 that hears of the loss twice, from ZeroMQ and from a look that is under
		// way, may stand still for ever: cut after a look.
		from := m.LogSize()
		e2e.Eventually(t, 60*time.Second, m.ID+" has looked at its connection", func() error {
			if !looked.MatchString(m.LogSince(t, from)) {
				return errors.New("not yet")
			}
			return nil
		})
		m.relay.cut(e2e.PublishPort, false)
	}
	connected(t, c.all(), 30*time.Second)
	e2e.Eventually(t, 30*time.Second, "all answer",
		func() error { return pinged(t, c.busy, ids(c.new)) })
	e2e.Eventually(t, afterLostReply, "legacy minions answer",
		func() error { return pinged(t, c.busy, ids(c.old)) })
	// From here on the minions check their connection several times and find no fault.
	offsets := map[*member]int64{}
	for _, m := range c.all() {
		offsets[m] = m.LogSize()
	}
	e2e.Throughout(t, 12*time.Second, "stay connected", func() error {
		for _, m := range c.all() {
			if m.relay.open(e2e.PublishPort) == 0 || m.SignIns(t, offsets[m]) > 0 {
				return fmt.Errorf("%s reconnects", m.ID)
			}
		}
		return nil
	})
}

// testCut is line 65: the connection is gone for two seconds.
func (s *suite) testCut(t *testing.T) {
	c := s.minions(t)
	connected(t, c.all(), 30*time.Second)
	e2e.Eventually(t, 60*time.Second, "no minion is still on its way to start", func() error {
		mark := c.events.mark()
		<-time.After(4 * time.Second)
		for _, m := range c.new {
			if late := c.events.since(mark,
				func(h happening) bool { return startStep(h, m.ID) != "" }); len(late) > 0 {
				return fmt.Errorf("%s: %v", m.ID, late[0].Tag)
			}
		}
		return nil
	})
	mark := c.events.mark()
	for _, m := range c.all() {
		m.relay.cut(0, true)
	}
	<-time.After(2 * time.Second)
	for _, m := range c.all() {
		m.relay.up(s.t)
	}
	for _, m := range c.new {
		want := map[string][]string{"3007.15": {"signed in", "minion_start", "start"},
			"3008.3": {"signed in", "minion_start", "start", "resources"}}[m.Release]
		if want == nil {
			continue
		}
		c.events.wait(t, mark, 30*time.Second, m.ID+" starts again",
			func(h happening) bool { return startStep(h, m.ID) == want[len(want)-1] })
		var got []string
		for _, h := range c.events.since(mark, func(happening) bool { return true }) {
			if step := startStep(h, m.ID); step != "" {
				got = append(got, step)
			}
		}
		got = slices.Compact(got)
		if len(got) > 0 && got[0] == "minion_start" {
			// It began with the session from before the cut, and signs in later.
			want = want[1:]
			got = slices.Compact(slices.DeleteFunc(got, func(s string) bool { return s == "signed in" }))
			got = got[max(0, len(got)-len(want)):] // it may begin again
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", m.ID, got, want)
		}
	}
	connected(t, c.all(), 30*time.Second)
	if err := answered(t, c.busy, c.new); err != nil {
		t.Error(err)
	}
	e2e.Eventually(t, afterLostReply, "legacy minions answer",
		func() error { return pinged(t, c.busy, ids(c.old)) })
}
