package simminion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"clustermaster/value"
)

func TestStartOrder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		release  string
		version  int
		commands []string
	}{
		{"3008.3", 3, []string{"_auth", "_pillar", "_minion_event", "_register_resources",
			"_minion_event"}},
		{"3006.28", 3, []string{"_auth", "_pillar", "_minion_event", "_minion_event"}},
	} {
		f := newFakeMaster(t)
		cfg := fast(t, f, "m1")
		cfg.Release, cfg.Version = tt.release, tt.version
		m, stop := start(t, cfg)
		ready(t, m)
		commands, events := f.seen()
		if !slices.Equal(commands, tt.commands) {
			t.Errorf("%s: %q, want %q", tt.release, commands, tt.commands)
		}
		if want := []string{"minion_start", "salt/minion/m1/start"}; !slices.Equal(events, want) {
			t.Errorf("%s: events %q", tt.release, events)
		}
		if p, err := m.Pillar().Map(); err != nil || p.String("from") != "fake" {
			t.Errorf("%s: pillar %v, %v", tt.release, p, err)
		}
		if err := stop(); err != nil {
			t.Errorf("%s: Run: %v", tt.release, err)
		}
	}
}

func TestSignInIsPatient(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	f.answers["m1"] = []any{true, true, "full", "bad load", true}
	m, _ := start(t, fast(t, f, "m1"))
	ready(t, m)
	if c := m.Counts(); c.Pending != 3 || c.SignIns != 1 {
		t.Errorf("%+v", c)
	}
}

func TestRejected(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	f.answers["gone"] = []any{true, false}
	m, err := New(fast(t, f, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context()); !errors.Is(err, ErrRejected) {
		t.Errorf("Run: %v", err)
	}
	f.mu.Lock()
	f.answers["stubborn"] = []any{false, false}
	f.mu.Unlock()
	cfg := fast(t, f, "stubborn")
	cfg.RejectedRetry = true
	s, _ := start(t, cfg)
	ready(t, s)

	// Rejected later: the keys change, and signing in again ends the minion.
	late, err := New(fast(t, f, "late"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- late.Run(t.Context()) }()
	ready(t, late)
	f.mu.Lock()
	f.answers["late"] = []any{false}
	f.sessions++
	f.mu.Unlock()
	f.publish("list", []any{"late"}, "test.ping")
	if err := <-done; !errors.Is(err, ErrRejected) {
		t.Errorf("Run: %v", err)
	}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	m, _ := start(t, fast(t, f, "web1"))
	ready(t, m)
	yes := value.Map{{Key: "__kwarg__", Value: true}, {Key: "a", Value: int64(1)}}
	for _, tt := range []struct {
		name      string
		fun       any
		args      []any
		ret       any
		retcode   any
		success   any
		outputter string
	}{
		{"ping", "test.ping", nil, true, int64(0), true, ""},
		{"echo", "test.echo", []any{"héllo"}, "héllo", int64(0), true, ""},
		{"arg", "test.arg", []any{"x", yes},
			value.Map{{Key: "args", Value: []any{"x"}},
				{Key: "kwargs", Value: value.Map{{Key: "a", Value: int64(1)}}}}, int64(0),
			true, ""},
		{"sleep", "test.sleep", []any{0.01}, true, int64(0), true, ""},
		{"version", "test.version", nil, "3008.3", int64(0), true, ""},
		{"unknown", "nosuch.fun", nil, "'nosuch.fun' is not available.", int64(1), false, "nested"},
		{"missing argument", "test.echo", nil, "ERROR: test.echo: argument text is missing",
			int64(1), false, "nested"},
		{"compound", []any{"test.ping", "test.echo"}, []any{[]any{}, []any{"b"}},
			value.Map{{Key: "test.ping", Value: true}, {Key: "test.echo", Value: "b"}},
			value.Map{{Key: "test.ping", Value: int64(0)}, {Key: "test.echo", Value: int64(0)}},
			value.Map{{Key: "test.ping", Value: true}, {Key: "test.echo", Value: true}}, ""},
		{"no job", "saltutil.find_job", []any{"20200101000000000000"}, value.Map{}, int64(0),
			true, ""},
		{"nothing runs", "saltutil.running", nil, []any{}, int64(0), true, ""},
	} {
		got := f.returned(f.publish("glob", "web*", tt.fun, tt.args...), 1)["web1"]
		ret, _ := got.Get("return")
		retcode, _ := got.Get("retcode")
		success, _ := got.Get("success")
		if !reflect.DeepEqual(ret, tt.ret) || !reflect.DeepEqual(retcode, tt.retcode) ||
			!reflect.DeepEqual(success, tt.success) || got.String("out") != tt.outputter {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	slow := f.publish("glob", "*", "test.sleep", 0.5)
	eventually(t, "the slow job is found", func() bool {
		got := f.returned(f.publish("glob", "*", "saltutil.find_job", slow), 1)["web1"]
		found, _ := got.Get("return")
		job, _ := found.(value.Map)
		return job.String("jid") == slow && job.String("fun") == "test.sleep"
	})
	running := f.returned(f.publish("glob", "*", "saltutil.running"), 1)["web1"]
	if jobs, _ := running.Get("return"); len(jobs.([]any)) != 1 {
		t.Errorf("running: %v", jobs)
	}
	f.returned(slow, 1)
}

func TestTargets(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	m, _ := start(t, fast(t, f, "web1.example"))
	ready(t, m)
	for _, tt := range []struct {
		tgtType string
		tgt     any
		want    bool
	}{
		{"glob", "web?.*", true}, {"glob", "db*", false}, {"glob", "[!d]eb1.example", true},
		{"pcre", `web\d`, true}, {"pcre", "example", false},
		{"list", []any{"db1", "web1.example"}, true}, {"list", []any{"db1"}, false},
		{"list", "db1,web1.example", true},
		{"grain", "os:Simul*", true}, {"grain", "os:Debian", false},
		{"compound", "G@os:Simulated and web*", true},
		{"compound", "G@os:Simulated and db*", false}, {"pillar", "from:fake", true},
		{"pillar", "from:other", false},
		{"nosuch", "*", false},
	} {
		before := m.Counts()
		f.publish(tt.tgtType, tt.tgt, "test.ping")
		eventually(t, "heard", func() bool {
			now := m.Counts()
			return now.Jobs+now.Foreign > before.Jobs+before.Foreign
		})
		if got := m.Counts().Jobs > before.Jobs; got != tt.want {
			t.Errorf("%s %v: %t", tt.tgtType, tt.tgt, got)
		}
	}
}

func TestDuplicatesAreIgnored(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	cfg := fast(t, f, "m1")
	cfg.JIDQueue = 3
	m, _ := start(t, cfg)
	ready(t, m)
	jid := f.publish("glob", "*", "test.ping")
	f.returned(jid, 1)
	f.again(jid, "list", []any{"m1"}, "test.ping", []any{})
	eventually(t, "ignored", func() bool { return m.Counts().Duplicates == 1 })
	for range 3 {
		f.returned(f.publish("glob", "*", "test.ping"), 1)
	}
	f.again(jid, "list", []any{"m1"}, "test.ping", []any{}) // forgotten by now
	eventually(t, "run again", func() bool { return m.Counts().Jobs == 5 })
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	for _, version := range []int{2, 3} {
		f := newFakeMaster(t)
		cfg := fast(t, f, "m1")
		cfg.Version = version
		m, _ := start(t, cfg)
		ready(t, m)
		f.rotate() // the publication doesn't open: sign in, then run the same one
		f.returned(f.publish("glob", "*", "test.ping"), 1)
		if c := m.Counts(); c.SignIns != 2 || c.Undecoded != 0 {
			t.Errorf("version %d: %+v", version, c)
		}
		f.mu.Lock()
		f.sessions++ // "bad load" for version 3: sign in, then repeat the request
		f.mu.Unlock()
		f.returned(f.publish("glob", "*", "test.ping"), 1)
		if want := int64(version); m.Counts().SignIns != want {
			t.Errorf("version %d: %d sign-ins after the session changed, want %d", version,
				m.Counts().SignIns, want)
		}
		eventually(t, "both taken", func() bool { return m.Counts().Returns == 2 })
	}
}

// A connection that dies with a request costs the time limit, as with libzmq, and
// then the request is made again.
func TestCutRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	cfg := fast(t, f, "m1")
	cfg.RequestTimeout = 300 * time.Millisecond
	m, _ := start(t, cfg)
	ready(t, m)
	f.mu.Lock()
	f.mute["_return"] = 4 // three tries make one round
	f.mu.Unlock()
	begin := time.Now()
	f.returned(f.publish("glob", "*", "test.ping"), 1)
	if took := time.Since(begin); took < 4*cfg.RequestTimeout {
		t.Errorf("returned after %v: it noticed what libzmq doesn't tell", took)
	}
	eventually(t, "counted", func() bool { return m.Counts().Returns == 1 })
	f.mu.Lock()
	f.mute["_return"] = 100
	f.mu.Unlock()
	f.publish("glob", "*", "test.ping")
	eventually(t, "given up", func() bool { return m.Counts().Lost == 1 })
}

// A relay stands for the balancer that closes the publish connection.
func TestPublishConnectionLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		release         string
		signIns, events int
	}{{"3006.28", 1, 2}, {"3007.15", 2, 4}, {"3008.3", 2, 4}} {
		f := newFakeMaster(t)
		relay := newRelay(t, fmt.Sprintf("127.0.0.1:%d", f.port))
		cfg := fast(t, f, "m1")
		cfg.Release, cfg.PublishAddr = tt.release, relay.addr
		m, _ := start(t, cfg)
		ready(t, m)
		f.returned(f.publish("glob", "*", "test.ping"), 1)
		relay.cut(func() {
			eventually(t, "lost", func() bool {
				return m.Counts().Reconnects == 1 &&
					f.pub.Subscribers() == 0
			})
		})
		eventually(t, "back", func() bool { return f.pub.Subscribers() == 1 })
		f.returned(f.publish("glob", "*", "test.ping"), 1)
		eventually(t, "start events", func() bool {
			_,
				events := f.seen()
			return len(events) == tt.events
		})
		if n := m.Counts().SignIns; n != int64(tt.signIns) {
			t.Errorf("%s: %d sign-ins, want %d", tt.release, n, tt.signIns)
		}
		if n := f.count("_pillar"); n != 1 {
			t.Errorf("%s: %d times the pillar", tt.release, n)
		}
	}
}

func TestFleet(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	const n = 50
	template := fast(t, f, "")
	template.Log, template.RequestTimeout, template.LocalAddr = nil, 20*time.Second, net.IPv4(127,
		0, 0, 2)
	template.RequestSlots, template.NoPillar = make(chan struct{}, 2), true
	fleet, err := NewFleet(template, "m", n, testKeys(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	fleet.Starting = 3
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	wait, stopWaiting := context.WithTimeout(t.Context(), 30*time.Second)
	defer stopWaiting()
	if err := fleet.WaitReady(wait); err != nil {
		t.Fatal(err)
	}
	if fleet.Started() != n {
		t.Errorf("%d started", fleet.Started())
	}
	f.returned(f.publish("glob", "*", "test.ping"), n)
	f.returned(f.publish("list", []any{"m7", "m50"}, "test.ping"), 2)
	for _, m := range fleet.Minions {
		m.line.Lock()
		if m.req != nil {
			t.Errorf("%s keeps its request connection", m.ID())
		}
		m.line.Unlock()
	}
	eventually(t, "counted", func() bool { return fleet.Counts().Returns == n+2 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.remotes) != 1 || !f.remotes["127.0.0.2"] {
		t.Errorf("source addresses %v", f.remotes)
	}
	if slices.Contains(f.commands, "_pillar") {
		t.Error("a minion asked for its pillar")
	}
	if f.starting > 3 || f.starting == 0 {
		t.Errorf("%d started at one time", f.starting)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{ID: "", Key: testKeys()[0], Master: "h:1"}, {ID: "a/b", Key: testKeys()[0], Master: "h:1"},
		{ID: "m", Master: "h:1"}, {ID: "m", Key: testKeys()[0], Master: "h"},
		{ID: "m", Key: testKeys()[0], Master: "h:1", Version: 1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
