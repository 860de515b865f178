package master

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/serve/event"
	"clustermaster/store/memory"
	"clustermaster/test/logtest"
	"clustermaster/value"
	"clustermaster/wire"
)

func TestReturn(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	const jid = "20261121093500438490"
	load := dict("cmd", "_return", "success", true, "return", true, "retcode", int64(0), "jid", jid,
		"fun", "test.ping", "fun_args", []any{},
		"user", "root", "_stamp", "2026-11-21T09:35:00.793179")
	if got := m.call(load); got != nil {
		t.Errorf("reply %v", got)
	}
	e := k.event("salt/job/" + jid + "/ret/m1")
	for _, key := range []string{"cmd", "success", "return", "retcode", "jid", "fun", "fun_args",
		"user", "id", "ts"} {
		if !has(e, key) {
			t.Errorf("event lacks %s: %v", key, e)
		}
	}
	if has(e, "nonce") || has(e, "tok") || e.String("_stamp") == "2026-11-21T09:35:00.793179" {
		t.Errorf("event has what it should not: %v", e)
	}
	kept := k.jobs.returns[jid]["m1"]
	if string(kept.Return) != "\xc3" || string(kept.Retcode) != "\x00" ||
		string(kept.Success) != "\xc3" || kept.Stamp == "" {
		t.Errorf("kept %+v", kept)
	}
	// A job that nobody published is found by its return's own account, without the return.
	if l := k.jobs.loads[jid]; l.String("fun") != "test.ping" || has(l, "return") {
		t.Errorf("load %v", l)
	}
	// Again: the event again, the first return stays, and no account of the job comes along.
	if got := m.call(load.Without("return").Set("return", "second")); got != nil {
		t.Errorf("reply %v", got)
	}
	k.event("salt/job/" + jid + "/ret/m1")
	if string(k.jobs.returns[jid]["m1"].Return) != "\xc3" || k.jobs.offered != 1 {
		t.Errorf("after a repetition: %+v, %d accounts", k.jobs.returns[jid]["m1"], k.jobs.offered)
	}
}

// TestEndTimes: job_cache_store_endtime keeps when the last return came.
func TestEndTimes(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		k := newKit(t, func(o *Options, _ *Deps) { o.StoreEndTime = on })
		m := k.accept("m1")
		if got := m.call(dict("cmd", "_return", "return", true, "jid", "req", "fun", "test.ping",
			"fun_args", []any{})); got != nil {
			t.Errorf("reply %v", got)
		}
		e := <-k.events.C
		jid := must(e.Map()).String("jid")
		if end := k.jobs.returns[jid]["m1"].End; (end != "") != on || on &&
			end < wire.JIDTime(jid) {
			t.Errorf("on %v: job %s ends %q", on, jid, end)
		}
	}
}

func TestSpontaneousReturn(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	load := dict("cmd", "_return", "return", true, "jid", "req", "fun", "test.ping", "fun_args",
		[]any{"x"}, "schedule", "jx")
	for _, nocache := range []bool{false, true} {
		if nocache {
			load = load.Set("nocache", true)
		}
		if got := m.call(load); got != nil {
			t.Errorf("reply %v", got)
		}
		e := <-k.events.C
		data := must(e.Map())
		jid := data.String("jid")
		if !wire.IsJID(jid) || e.Tag != "salt/job/"+jid+"/ret/m1" || data.String("tgt") != "m1" ||
			data.String("tgt_type") != "glob" || !same(field(data, "arg"), []any{"x"}) {
			t.Errorf("event %s %v", e.Tag, data)
		}
		if _, kept := k.jobs.returns[jid]["m1"]; kept == nocache {
			t.Errorf("nocache %v: kept %v", nocache, kept)
		}
		if l, ok := k.jobs.loads[jid]; !ok || l.String("tgt") != "m1" || has(l, "return") ||
			k.jobs.nocache[jid] != nocache {
			t.Errorf("nocache %v: load %v, marked %v", nocache, l, k.jobs.nocache[jid])
		}
	}
}

func TestReturnVariants(t *testing.T) {
	t.Parallel()
	base := dict("cmd", "_return", "return", true, "jid", "20261121093500438490", "fun",
		"test.ping")
	tests := []struct {
		name   string
		load   value.Map
		change func(*Options)
		want   any
		tag    string
		kept   bool
	}{
		{name: "free text jid", load: base.Without("jid").Set("jid", "foo"),
			tag: "salt/job/foo/ret/m1", kept: true},
		{name: "nocache jid", load: base.Without("jid").Set("jid", "nocache"),
			tag: "salt/job/nocache/ret/m1"},
		{name: "job_cache off", load: base, change: func(o *Options) { o.JobCache = false },
			tag: "salt/job/20261121093500438490/ret/m1"},
		{name: "ext_job_cache", load: base, change: func(o *Options) { o.ExtJobCache = "redis" },
			tag: "salt/job/20261121093500438490/ret/m1"},
		{name: "no return", load: base.Without("return")},
		{name: "no jid", load: base.Without("jid")},
		{name: "jid with a slash", load: base.Without("jid").Set("jid", "1/ret/m2")},
		{name: "endless jid", load: base.Without("jid").Set("jid", strings.Repeat("1", 1000))},
		{name: "jid a number", load: base.Without("jid").Set("jid", int64(5))},
		{name: "signature wanted", load: base,
			change: func(o *Options) { o.RequireMinionSignMessages = true }, want: false},
		{name: "bad signature kept", load: append(dict(), base...).Set("sig", []byte("x")),
			tag: "salt/job/20261121093500438490/ret/m1", kept: true},
		{name: "bad signature dropped", load: append(dict(), base...).Set("sig", []byte("x")),
			change: func(o *Options) { o.DropMessagesSignatureFail = true }, want: false},
		{name: "of a resource, of which none is known",
			load: append(dict(), base...).Set("resource_id", "m2"), want: false},
		{name: "of itself as a resource", load: append(dict(), base...).Set("resource_id", "m1"),
			tag: "salt/job/20261121093500438490/ret/m1", kept: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, func(o *Options, _ *Deps) {
				if tt.change != nil {
					tt.change(o)
				}
			})
			if got := k.accept("m1").call(tt.load); !same(got, tt.want) {
				t.Errorf("reply %v, want %v", got, tt.want)
			}
			if tt.tag == "" {
				k.noEvent()
			} else {
				k.event(tt.tag)
			}
			if kept := len(k.jobs.returns) > 0; kept != tt.kept {
				t.Errorf("kept: %v", kept)
			}
		})
	}
}

func TestSignedReturn(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) {
		o.RequireMinionSignMessages,
			o.DropMessagesSignatureFail = true, true
	})
	m := k.accept("m1")
	m.sender.SignKey = minionKey()
	if got := m.call(dict("cmd", "_return", "return", dict("a", int64(1)), "jid",
		"20261121093500438490", "fun", "x")); got != nil {
		t.Errorf("reply %v", got)
	}
	k.event("salt/job/20261121093500438490/ret/m1")
}

// kept notes what is kept for returners, and how much of it was synced.
type kept struct {
	mu            sync.Mutex
	items, synced int
	err           error
}

func (f *kept) add() { f.mu.Lock(); f.items++; f.mu.Unlock() }

func (f *kept) Job(string, value.Map, []string)     { f.add() }
func (f *kept) Minions(string, string, []string)    { f.add() }
func (f *kept) Return(string, value.RawMap, string) { f.add() }
func (f *kept) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = f.items
	return f.err
}

// TestKeptForReturners: what is kept for returners is on stable storage before the acknowledgement,
// and without that there is none.
func TestKeptForReturners(t *testing.T) {
	t.Parallel()
	f := &kept{}
	k := newKit(t, func(_ *Options, d *Deps) {
		d.Kept = f
		d.Bus.Keep(func(string) bool { return true }, func(event.Event) { f.add() })
	})
	m := k.accept("m1")
	for _, load := range []value.Map{
		dict("cmd", "_return", "return", true, "jid", "20261121093500438490", "fun", "x"),
		dict("cmd", "_minion_event", "tag", "site/x", "data", dict("a", int64(1))),
	} {
		before := f.items
		m.call(load)
		if f.items == before || f.synced != f.items {
			t.Errorf("%s: %d items kept, %d of them synced", load.String("cmd"), f.items, f.synced)
		}
		f.err = errors.New("the disk is gone")
		if _, err := k.Handle(context.Background(), Request{Payload: m.seal(load, nonce())}); err == nil {
			t.Errorf("%s is acknowledged without a sync", load.String("cmd"))
		}
		f.err = nil
	}
	if _, err := k.Publish(context.Background(), PublishRequest{Tgt: "m1", Fun: "test.ping"}); err !=
		nil || f.synced != f.items {
		t.Errorf("a job: %v, %d items kept, %d of them synced", err, f.items, f.synced)
	}
}

// TestUnstoredReturn: what is not on stable storage is not acknowledged, and the minion sends it
// again.
func TestUnstoredReturn(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	k.jobs.err = errors.New("no owner")
	reply, err := k.Handle(context.Background(),
		Request{Payload: m.seal(dict("cmd", "_return", "return", true, "jid",
			"20261121093500438490"), nonce())})
	if reply != nil || !errors.Is(err, errUnacknowledged) {
		t.Errorf("got %d bytes, %v", len(reply), err)
	}
	k.data.err = errors.New("no owner")
	reply, err = k.Handle(context.Background(),
		Request{Payload: m.seal(dict("cmd", "_mine", "data", dict("a", true)), nonce())})
	if reply != nil || !errors.Is(err, errUnacknowledged) {
		t.Errorf("mine: got %d bytes, %v", len(reply), err)
	}
}

func TestFailedStates(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	ret := dict("pkg_|-a_|-a_|-installed", dict("result", false, "comment", "no"),
		"file_|-b_|-b_|-managed", dict("result", true), "odd", "text")
	m.call(dict("cmd", "_return", "return", ret, "retcode", int64(2), "jid", "20261121093500438490",
		"fun", "state.sls", "user", "root"))
	k.event("salt/job/20261121093500438490/ret/m1")
	k.event("pkg.installed")
	e := k.event("salt/job/20261121093500438490/sub/m1/error/state.sls")
	if e.String("return") != "Error: pkg.installed" || e.String("id") != "m1" ||
		field(e, "success") != false || e.String("comment") != "no" {
		t.Errorf("event %v", e)
	}
	k.noEvent()
}

func TestMinionEventSingle(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	if got := m.call(dict("cmd", "_minion_event", "pretag", nil, "data", "Minion m1 started", "tag",
		"salt/minion/m1/start")); got != nil {
		t.Errorf("reply %v", got)
	}
	if e := k.event("salt/minion/m1/start"); e.String("data") != "Minion m1 started" ||
		e.String("cmd") != "_minion_event" || e.String("id") != "m1" || !has(e, "ts") {
		t.Errorf("event %v", e)
	}
	for _, tag := range []string{"salt/key", "salt/job/1/new", "salt/job/1/publish",
		"salt/run/1/ret", "salt/wheel/1/new", "salt/cluster/x", "salt/cloud/x",
		"salt/job/1/ret/m2", "", "salt/key\n\nx", "salt/key\n", "own\n\ntag",
		strings.Repeat("x", maxTag+1)} {
		if got := m.call(dict("cmd", "_minion_event", "data", "x", "tag", tag)); got != nil {
			t.Errorf("%.30s: reply %v", tag, got)
		}
	}
	m.call(dict("cmd", "_minion_event", "tag", "nodata"))
	m.call(dict("cmd", "_minion_event"))
	k.noEvent()
}

func TestMinionEventBatch(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.OrderMasters, o.Syndics = true, []string{"o*"} })
	m := k.accept("o")
	got := m.call(dict("cmd", "_minion_event", "pretag", "syndic/o", "events", []any{
		dict("tag", "t2", "data", dict("a", int64(1))),
		dict("tag", "salt/key", "data", dict("b", int64(2))), dict("tag", "t3", "x", "y"),
		dict("tag", "bad", "data", "text"), "junk", dict("data", dict()),
		dict("tag", "salt/job/1/new", "data",
			dict("jid", "1", "minions", []any{"a", "../b", int64(1)})),
	}))
	if got != nil {
		t.Errorf("reply %v", got)
	}
	for _, tag := range []string{"syndic/o/t2", "t2", "syndic/o/salt/key", "syndic/o/t3", "t3",
		"syndic/o/salt/job/1/new"} {
		e := k.event(tag)
		if tag == "t2" && (len(e) != 2 || !same(field(e, "a"), int64(1))) {
			t.Errorf("%s: %v", tag, e)
		}
		if tag == "t3" && e.String("x") != "y" {
			t.Errorf("%s: %v", tag, e)
		}
	}
	k.noEvent()
	if got := k.jobs.minions["1"]; !same(got, []string{"a"}) {
		t.Errorf("minions of the job: %v", got)
	}
}

// A prefix that makes a tag a reserved one, or the return of another, gets no further than the tag
// itself would.
func TestMinionEventPrefix(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	for _, c := range [][2]string{
		{"salt", "key"}, {"salt/", "/key"}, {"salt/run/1", "new"}, {"salt/job/1/ret", "m2"},
		{"", "salt//key"}, {strings.Repeat("x", maxTag), "y"},
	} {
		m.call(dict("cmd", "_minion_event", "pretag", c[0], "events",
			[]any{dict("tag", c[1], "data", dict())}))
		e := k.event(c[1]) // alone it is no reserved one
		if len(e) > 1 {
			t.Errorf("%q: %v", c, e)
		}
		k.noEvent()
	}
}

func TestSyndicReturn(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) {
		o.OrderMasters, o.Syndics = true,
			[]string{"syndic*"}
	})
	m := k.accept("syndic1")
	k.accept("m1")
	const jid = "20261121093500438490"
	one := dict("jid", jid, "id", "syndic1", "fun", "test.ping", "fun_args", []any{}, "load",
		dict("fun", "test.ping", "tgt", "*", "kwargs", dict("token", "x")),
		"return", dict("a", dict("return", true, "retcode", int64(0), "id", "m1", "fun", "x"),
			"../b", dict("return", true), "c", "junk", "m1", dict("return", "forged")))
	if got := m.call(dict("cmd", "_syndic_return", "load",
		[]any{one, "junk", dict("jid", "1")})); got != nil {
		t.Errorf("reply %v", got)
	}
	if e := k.event("salt/job/" + jid + "/ret/a"); e.String("fun") != "test.ping" ||
		e.String("id") != "a" {
		t.Errorf("event %v", e)
	}
	k.noEvent() // m1 has a key here: it speaks for itself
	if l := k.jobs.loads[jid]; !same(field(l, "kwargs"), dict()) || len(k.jobs.returns[jid]) != 1 {
		t.Errorf("load %v, returns %v", l, k.jobs.returns)
	}
	// The job's load stays as it is.
	k.jobs.loads[jid] = dict("fun", "cmd.run", "user", "root")
	m.call(dict("cmd", "_syndic_return", "load", []any{one}))
	k.event("salt/job/" + jid + "/ret/a")
	if l := k.jobs.loads[jid]; l.String("fun") != "cmd.run" || l.String("user") != "root" {
		t.Errorf("load %v", l)
	}
}

// TestNoSyndicReturn: who is no syndic returns nothing for others, nor does a syndic without a
// signature that is wanted.
func TestNoSyndicReturn(t *testing.T) {
	t.Parallel()
	load := dict("cmd", "_syndic_return", "load",
		[]any{dict("jid", "20261121093500438490", "id", "syndic1", "return",
			dict("a", dict("return", true)), "load", dict("fun", "x"))})
	for name, change := range map[string]func(o *Options){
		"no order_masters": func(o *Options) { o.Syndics = []string{"*"} },
		"no syndic's key": func(o *Options) {
			o.OrderMasters, o.Syndics = true,
				[]string{"other"}
		},
		"no syndics": func(o *Options) { o.OrderMasters = true },
		"without signature": func(o *Options) {
			o.OrderMasters, o.Syndics,
				o.RequireMinionSignMessages = true, []string{"*"}, true
		},
		"with one, not his?": func(o *Options) {
			o.OrderMasters, o.Syndics,
				o.DropMessagesSignatureFail = true, []string{"*"}, true
		},
	} {
		k := newKit(t, func(o *Options, _ *Deps) { change(o) })
		m := k.accept("syndic1")
		if strings.HasPrefix(name, "with one") {
			m.sender.SignKey = otherKey()
		}
		if got := m.call(load); got != false {
			t.Errorf("%s: reply %v", name, got)
		}
		k.noEvent()
		if len(k.jobs.loads)+len(k.jobs.returns) > 0 {
			t.Errorf("%s: kept %v %v", name, k.jobs.loads, k.jobs.returns)
		}
	}
	k := newKit(t, func(o *Options, _ *Deps) {
		o.OrderMasters, o.Syndics, o.RequireMinionSignMessages = true, []string{"*"}, true
	})
	m := k.accept("syndic1")
	m.sender.SignKey = minionKey()
	m.call(load.Without("load").Set("load",
		[]any{dict("jid", "20261121093500438490", "id", "syndic1", "return",
			dict("a", dict("return", true)))}))
	k.event("salt/job/20261121093500438490/ret/a")
}

// TestEventsInAnothersName: a minion's events name nobody but itself, whatever tag, prefix or data
// it chooses.
func TestEventsInAnothersName(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.OrderMasters, o.Syndics = true, []string{"s1"} })
	m, syndic := k.accept("m1"), k.accept("s1")
	k.accept("m2")
	single := func(m *fakeMinion, tag string) {
		m.call(dict("cmd", "_minion_event", "tag", tag,
			"data", "x"))
	}
	batch := func(m *fakeMinion, tag string, data value.Map) {
		m.call(dict("cmd", "_minion_event", "events", []any{dict("tag", tag, "data", data)}))
	}
	for _, tag := range []string{
		"salt/auth", "salt/auth/x", "salt/minion/m2/start", "salt/minion/m2", "salt/wheel/1/ret",
		"salt/wheel/x", "salt/presence/present", "salt/presence/change",
		"salt/master/x/start", "salt/beacon/m2/load/", "salt/job/1/ret/m2", "salt/job/1/x/ret/m2",
		"salt/job/1/ret/m1/ret/m2", "salt/job/1/prog/m2/1",
		"salt/job/1/start/m2", "salt/state_result/1/m2/x", "syndic/s1/start", "syndic/m1/start",
		"syndic/m1/1",
	} {
		single(m, tag)
		batch(m, tag, dict("id", "m1"))
		m.call(dict("cmd", "_minion_event", "pretag", strings.Split(tag, "/")[0], "events",
			[]any{dict("tag", strings.SplitN(tag, "/", 2)[1], "data", "junk")}))
	}
	for _, tag := range []string{"salt/minion/m1/start", "salt/job/1/ret/m1",
		"salt/job/1/prog/m1/0", "salt/beacon/m1/load/"} {
		batch(m, tag, dict("id", "m2", "return", true))
		batch(m, tag, dict("id", int64(1)))
	}
	// Decoders read an unknown extension as its payload, so this key is "id" again.
	for _, cmd := range []string{"_minion_event", "_return"} {
		load := append(dict("cmd", cmd, "tag", "own/x", "data", "x", "jid", "1", "fun", "test.ping", "return", true,
			"id", "m1"), value.Pair{Key: value.Raw("\xc7\x02\x05id"), Value: "m2"})
		if got := k.value(m.seal(load, nonce())); got != "bad load" {
			t.Errorf("%s with a second id: %v", cmd, got)
		}
	}
	batch(m, "salt/job/1/x", dict("jid", "1", "minions", []any{"m2"}))
	batch(m, "own/x", dict("jid", "1", "minions", []any{"m2"}))
	k.event("own/x")
	m.call(dict("cmd", "_minion_event", "tag", "salt/job/1/x", "data", "x", "minions", []any{"m2"}))
	m.call(dict("cmd", "_return", "jid", "1", "fun", "state.sls", "retcode", int64(1),
		"return", dict(
			"salt/job/2/ret/m2_|-x", dict("result", false, "id", "m2.x", "return", "forged"),
			"salt/auth_|-x_|-y", dict("result", false))))
	k.event("salt/job/1/ret/m1")
	k.noEvent()
	if len(k.jobs.minions) > 0 {
		t.Errorf("a minion widened jobs: %v", k.jobs.minions)
	}
	// What minions do send goes through.
	for _, tag := range []string{"salt/minion/m1/start", "salt/beacon/m1/load/",
		"salt/job/1/prog/m1/1", "salt/job/1/start/m1", "salt/state_result/1/m1/x",
		"salt/scheduler/x", "salt/engines/x", "minion_start", "myorg/deploy/m2", "salt/minion"} {
		single(m, tag)
		k.event(tag)
		batch(m, tag, dict("a", "b"))
		k.event(tag)
	}
	batch(m, "myorg/deploy", dict("id", "m2"))
	k.event("myorg/deploy")
	// A syndic speaks for those below it, not for minions that have a key here, nor for the master.
	for _, tag := range []string{"salt/minion/low/start", "salt/beacon/low/x", "syndic/s1/start"} {
		single(syndic, tag)
		k.event(tag)
	}
	for _, tag := range []string{"salt/minion/m2/start", "salt/job/1/ret/m2", "salt/auth",
		"syndic/s2/start"} {
		single(syndic, tag)
	}
	k.noEvent()
}

// TestMinionErrors: the master logs the exceptions that minions report, a flood of them once.
func TestMinionErrors(t *testing.T) {
	t.Parallel()
	var said logtest.Buffer
	k := newKit(t, nil)
	k.Master.log = slog.New(slog.NewTextHandler(&said, nil))
	m := k.accept("m1")
	for range 20 {
		m.call(dict("cmd", "_minion_event", "tag", "_salt_error", "data", dict("message", "it broke")))
		k.event("_salt_error")
	}
	if n := strings.Count(said.String(), "it broke"); n != 1 || !strings.Contains(said.String(), "minion=m1") {
		t.Errorf("%d lines:\n%s", n, said.String())
	}
}

// pillars makes a pillar that names who asks.
type pillars struct{ err error }

func (p pillars) Pillar(_ context.Context, r PillarRequest) (MadePillar, error) {
	made := dict("for", r.ID, "grain", r.Grains.String("id"), "env", r.Saltenv)
	return MadePillar{Pillar: made, Keep: made}, p.err
}

func TestPillar(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, d *Deps) { o.MinimumAuthVersion, d.Pillars = 0, pillars{} })
	k.accept("m1")
	load := dict("cmd", "_pillar", "id", "m1", "grains", dict("os", "Debian", "id", "m2"),
		"saltenv", "dev", "pillarenv", nil, "pillar_override", dict(),
		"extra_minion_data", dict(), "ver", "2")
	for _, version := range []int{0, 1, 2, 3} {
		for _, algos := range [][2]string{{"", ""}, {wire.EncSHA224, wire.SigSHA224}} {
			m := k.minion(version, "m1")
			m.sender.EncAlgo, m.sender.SigAlgo = algos[0], algos[1]
			n := nonce()
			raw, err := wire.OpenPrivate(minionKey(), clusterKey().Public(), m.sender,
				k.handle(m.seal(load, n)), "pillar", n)
			if err != nil || !same(must(raw.Unpack()),
				dict("for", "m1", "grain", "m1", "env", "dev")) {
				t.Errorf("version %d %v: %v", version, algos, err)
			}
			if e := k.event("minion/refresh/m1"); e.String("Minion data cache refresh") != "m1" {
				t.Errorf("event %v", e)
			}
		}
	}
	if g := k.data.grains["m1"]; g.String("id") != "m1" || g.String("os") != "Debian" {
		t.Errorf("grains %v", g)
	}
	m := k.minion(3, "m1")
	inner := append(append(dict(), load...), value.Pair{Key: "tok", Value: token()})
	noNonce := pack(dict("enc", "aes", "version", int64(3), "id", "m1", "load",
		must(m.crypt().Seal(pack(inner), ""))))
	if got := k.value(noNonce); !same(got, dict("error", "Nonce not included in request")) {
		t.Errorf("without nonce: %v", got)
	}
	// Not "2": sealed as any other reply.
	if got := m.call(load.Without("ver")); !same(field(got.(value.Map), "for"), "m1") {
		t.Errorf("old form: %v", got)
	}
}

func TestPillarRefusals(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(_ *Options, d *Deps) { d.Pillars = pillars{err: errors.New("bad top")} })
	m := k.accept("m1")
	open := func(load value.Map) any {
		n := nonce()
		raw, err := wire.OpenPrivate(minionKey(), clusterKey().Public(), m.sender,
			k.handle(m.seal(load, n)), "pillar", n)
		if err != nil {
			t.Fatal(err)
		}
		return must(raw.Unpack())
	}
	if got := open(dict("cmd", "_pillar", "ver", "2")); !same(got, dict()) {
		t.Errorf("no grains: %v", got)
	}
	if got := open(dict("cmd", "_pillar", "ver", "2", "grains", "text")); !same(got, dict()) {
		t.Errorf("bad grains: %v", got)
	}
	if got := open(dict("cmd", "_pillar", "ver", "2", "grains", dict())); got != "" {
		t.Errorf("failing pillar: %v", got)
	}
}

func TestMasterOpts(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) {
		o.FileEnvs = func() []string { return []string{"base", "dev"} }
		o.MasterOpts = dict("state_aggregate", true, "nodegroups", dict("g", "m1"))
	})
	m := k.accept("m1")
	got := m.call(dict("cmd", "_master_opts")).(value.Map)
	for _, key := range []string{"file_roots", "top_file_merging_strategy", "env_order",
		"default_top", "renderer", "failhard", "state_top", "state_top_saltenv", "nodegroups",
		"state_auto_order", "state_events", "state_aggregate", "jinja_env", "jinja_sls_env",
		"jinja_lstrip_blocks", "jinja_trim_blocks"} {
		if !has(got, key) {
			t.Errorf("%s is missing", key)
		}
	}
	if !same(field(got, "file_roots"), dict("base", []any{}, "dev", []any{})) ||
		field(got, "state_aggregate") != true {
		t.Errorf("got %v", got)
	}
	if got := m.call(dict("cmd", "_master_opts", "env_only", true)).(value.Map); len(got) != 4 {
		t.Errorf("env_only: %v", got)
	}
	if got := m.call(dict("cmd", "_master_tops", "opts", dict("id", "m1"))); !same(got, dict()) {
		t.Errorf("tops: %v", got)
	}
}

func TestMine(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m, other := k.accept("m1"), k.accept("m2")
	k.data.grains["m1"], k.data.grains["m2"] = dict("os", "Debian"), dict("os", "Debian")
	k.data.pillar["m1"], k.data.pillar["m2"] = dict("color", "blue"), dict("color", "red")
	aclOf := func(tgtType, tgt string) value.Map {
		return dict("__data__", "secret", "__saltmine_acl__", int64(1), "allow_tgt", tgt,
			"allow_tgt_type", tgtType)
	}
	acl := func(tgt string) value.Map { return aclOf("glob", tgt) }
	steps := []struct {
		who  *fakeMinion
		load value.Map
		want any
	}{
		{m, dict("cmd", "_mine", "data", dict("ip", "10.0.0.1", "priv", acl("m1"), "none",
			acl("nobody"), "blue", aclOf("pillar", "color:bl*"),
			"blues", aclOf("compound", "I@color:bl* and m*"))), true},
		{m, dict("cmd", "_mine", "data", dict("more", int64(1))), true},
		{other, dict("cmd", "_mine", "data", dict("ip", "10.0.0.2")), true},
		{m, dict("cmd", "_mine"), dict()},
		{other, dict("cmd", "_mine_get", "tgt", "*", "fun", "ip"),
			dict("m1", "10.0.0.1", "m2", "10.0.0.2")},
		{other, dict("cmd", "_mine_get", "tgt", "*", "fun", []any{"ip"}),
			dict("ip", dict("m1", "10.0.0.1", "m2", "10.0.0.2"))},
		{other, dict("cmd", "_mine_get", "tgt", "m1", "fun", "ip,more"),
			dict("ip", dict("m1", "10.0.0.1"), "more", dict("m1", int64(1)))},
		{other, dict("cmd", "_mine_get", "tgt", "m1", "fun", "ip,more,ip,more"),
			dict("ip", dict("m1", "10.0.0.1"), "more", dict("m1", int64(1)))},
		{other, dict("cmd", "_mine_get", "tgt", "m1", "fun", "ip,ip"), dict("m1", "10.0.0.1")},
		{other, dict("cmd", "_mine_get", "tgt", "m1", "fun", "priv"), dict()},
		{m, dict("cmd", "_mine_get", "tgt", "m1", "fun", "priv"), dict("m1", "secret")},
		{m, dict("cmd", "_mine_get", "tgt", "m1", "fun", "none"), dict()},
		{m, dict("cmd", "_mine_get", "tgt", "m1", "fun", "blue"), dict("m1", "secret")},
		{other, dict("cmd", "_mine_get", "tgt", "m1", "fun", "blue"), dict()},
		{m, dict("cmd", "_mine_get", "tgt", "m1", "fun", "blues"), dict("m1", "secret")},
		{other, dict("cmd", "_mine_get", "tgt", "m1", "fun", "blues"), dict()},
		{other, dict("cmd", "_mine_get", "tgt", "color:bl*", "tgt_type", "pillar", "fun", "ip"),
			dict()},
		{other, dict("cmd", "_mine_get", "tgt", "color:blue", "tgt_type", "pillar", "fun", "ip"),
			dict("m1", "10.0.0.1")},
		{other, dict("cmd", "_mine_get", "tgt", "color:bl.*", "tgt_type", "pillar_pcre", "fun", "ip"),
			dict()},
		{other, dict("cmd", "_mine_get", "tgt", "J@color:bl.*", "tgt_type", "compound", "fun", "ip"),
			dict()},
		{other, dict("cmd", "_mine_get", "tgt", "I@color:bl*", "tgt_type", "compound", "fun", "ip"),
			dict()},
		{other, dict("cmd", "_mine_get", "tgt", "os:Debian", "expr_form", "grain", "fun", "ip"),
			dict("m1", "10.0.0.1", "m2", "10.0.0.2")},
		{other, dict("cmd", "_mine_get", "tgt", "*"), dict()},
		{other, dict("cmd", "_mine_get", "tgt", "*", "fun", int64(1)), dict()},
		{m, dict("cmd", "_mine_delete", "fun", "more"), true},
		{m, dict("cmd", "_mine_delete", "fun", "nosuch"), true},
		{m, dict("cmd", "_mine_delete"), dict()},
		{m, dict("cmd", "_mine", "data", dict("new", true), "clear", true), true},
		{m, dict("cmd", "_mine_get", "tgt", "m1", "fun", "ip"), dict()},
		{m, dict("cmd", "_mine_flush"), true},
		{m, dict("cmd", "_mine_get", "tgt", "m1", "fun", "new"), dict()},
	}
	for _, s := range steps {
		if got := s.who.call(s.load); !same(got, s.want) {
			t.Errorf("%v: got %v, want %v", s.load, got, s.want)
		}
	}
	limited := newKit(t, func(o *Options,
		_ *Deps) {
		o.MineGet = dict("m[1-3]", []any{"ip", "net.*"})
	})
	lm := limited.accept("m1")
	lm.call(dict("cmd", "_mine", "data", dict("ip", "a", "secret", "b", "network.x", "c")))
	for fun, want := range map[string]any{"ip": dict("m1", "a"), "secret": dict(),
		"network.x": dict("m1", "c")} {
		if got := lm.call(dict("cmd", "_mine_get", "tgt", "m1", "fun", fun)); !same(got, want) {
			t.Errorf("limited %s: %v", fun, got)
		}
	}
}

// TestMineMemory: the values that a minion reads from mines count as memory of its request, once
// each, as they lie and not decoded. Without memory the minion gets no reply, which it would take
// for an empty mine.
func TestMineMemory(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	dense := make([]any, 100_000) // decoded, each element takes 16 bytes and more
	for i := range dense {
		dense[i] = []any{}
	}
	limited := dict("__data__", dense, "__saltmine_acl__", int64(1), "allow_tgt", "m*",
		"allow_tgt_type", "glob")
	k.data.mines["m1"] = dict("plain", dense, "limited", limited)
	size := int64(len(must(value.Pack(dense))) + len(must(value.Pack(limited))))
	const few = 1 << 12 // what the request itself takes
	for _, tt := range []struct {
		room   int64
		served bool
	}{{size + few, true}, {size - few, false}, {few, false}} {
		before := refusedFor(t, k, "memory")
		s := &fakeSender{room: tt.room}
		reply, err := k.Handle(t.Context(), Request{Sender: s, Payload: m.seal(dict("cmd",
			"_mine_get", "id", "m1", "tgt", "*", "fun", "plain,limited,plain,limited,plain"), nonce())})
		if (err == nil && len(reply) > int(size)) != tt.served {
			t.Errorf("room for %d bytes: a reply of %d bytes, %v", tt.room, len(reply), err)
		}
		if refused := refusedFor(t, k, "memory") > before; refused == tt.served || s.held > size+few {
			t.Errorf("room for %d bytes: held %d, refused %v", tt.room, s.held, refused)
		}
	}
	got, err := k.MineGet(t.Context(), "m1", "m1", "plain", "glob")
	if err != nil || !same(got, dict("m1", dense)) {
		t.Errorf("templates get %v", err)
	}
}

// TestMineUnread: a minion gets no reply while nobody can say what it may see. It would take any
// for the mine.
func TestMineUnread(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	k.data.pillar["m1"] = dict("color", "blue")
	k.data.mines["m1"] = dict("ip", dict("__data__", "10.0.0.1", "__saltmine_acl__", int64(1),
		"allow_tgt", "color:blue", "allow_tgt_type", "pillar"))
	k.data.mines["m1"] = append(k.data.mines["m1"], value.Pair{Key: "open", Value: "x"})
	of := func(ctx context.Context, tgtType string, tgt any, fun string) error {
		_, err := k.Handle(ctx, Request{Payload: m.seal(dict("cmd", "_mine_get", "id", "m1", "tgt",
			tgt, "tgt_type", tgtType, "fun", fun), nonce())})
		return err
	}
	ask := func(ctx context.Context) error { return of(ctx, "list", []any{"m1"}, "ip") }
	if err := ask(t.Context()); err != nil {
		t.Errorf("with all that it needs: %v", err)
	}
	k.data.incomplete = "3 of 4 partitions"
	if err := ask(t.Context()); !errors.Is(err, errUnreadData) {
		t.Errorf("with pillars unread: %v", err)
	}
	if err := of(t.Context(), "list", []any{"m1"}, "open"); err != nil {
		t.Errorf("a target that needs no data: %v", err)
	}
	if err := of(t.Context(), "grain", "os:x", "open"); !errors.Is(err, errUnreadData) {
		t.Errorf("a target with grains unread: %v", err)
	}
	k.data.incomplete = ""
	for range cap(k.resolving) {
		k.resolving <- struct{}{}
	}
	over, cancel := context.WithCancel(t.Context()) // it would wait for the turn no longer
	cancel()
	if err := ask(over); !errors.Is(err, errBusyTargets) {
		t.Errorf("without a turn: %v", err)
	}
}

// TestMineGetDecodes: a runner gets decoded values, which count as such.
func TestMineGetDecodes(t *testing.T) {
	k := newKit(t, nil)
	k.accept("m1")
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20)) // 4 MB of an answer
	dense := slices.Repeat([]any{[]any{}}, 500_000)
	k.data.mines["m1"] = dict("dense", dense, "thin", []any{})
	if got, err := k.MineGet(t.Context(), "", "m1", "thin", "glob"); err != nil || len(got) != 1 {
		t.Errorf("small: %v, %v", got, err)
	}
	var refused *memory.AnswerError
	if _, err := k.MineGet(t.Context(), "", "m1", "dense", "glob"); !errors.As(err, &refused) {
		t.Errorf("large once decoded: %v", err)
	}
}

func TestRevokeAndRegister(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	if got := m.call(dict("cmd", "_register_resources", "resources", dict(), "resource_grains",
		dict())); got != true {
		t.Errorf("register: %v", got)
	}
	k.event("resource/refresh/m1")
	if got := m.call(dict("cmd", "_register_resources")); !same(got, dict()) {
		t.Errorf("register without fields: %v", got)
	}
	if got := m.call(dict("cmd", "revoke_auth")); got != true ||
		!same(k.keys.revoked, []string{"m1"}) {
		t.Errorf("revoke: %v, %v", got, k.keys.revoked)
	}
	forbidden := newKit(t, func(o *Options, _ *Deps) { o.AllowMinionKeyRevoke = false })
	if got := forbidden.accept("m1").call(dict("cmd",
		"revoke_auth")).(value.Map); got.String("cmd") != "revoke_auth" ||
		len(forbidden.keys.revoked) != 0 {
		t.Errorf("forbidden: %v", got)
	}
}

// echoing is a file server that says what it was asked.
type echoing struct{}

func (echoing) Serve(_ context.Context, cmd string, load value.Map) (any, error) {
	if cmd == "_serve_file" {
		return nil, errors.New("bad position")
	}
	if load.String("saltenv") == "broken" {
		return []any{"part"}, errors.New("a back end failed")
	}
	return cmd + " " + load.String("path"), nil
}

func TestFiles(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(_ *Options, d *Deps) { d.Files = echoing{} })
	m := k.accept("m1")
	if got := m.call(dict("cmd", "_file_hash", "path", "x")); got != "_file_hash x" {
		t.Errorf("got %v", got)
	}
	if got := m.call(dict("cmd", "_serve_file", "path", "x")); got != "" {
		t.Errorf("failing: %v", got)
	}
	for cmd, want := range map[string]any{"_file_list": nil, "_file_list_emptydirs": nil,
		"_dir_list": nil, "_symlink_list": nil, "_file_hash": ""} {
		if got := m.call(dict("cmd", cmd, "saltenv", "broken")); got != want {
			t.Errorf("%s, failing: got %#v, want %#v", cmd, got, want)
		}
	}
}

// The budgets of allocations of the busiest requests, from bytes to bytes, with a job cache and a
// file server that allocate little.
func TestAllocations(t *testing.T) {
	for name, tt := range map[string]struct {
		budget float64
		load   value.Map
	}{
		"_return":       {38, pingReturn()},
		"_minion_event": {26, startEvent()},
		"_file_hash": {38, dict("cmd", "_file_hash", "path", "apache/init.sls", "saltenv",
			"base")},
	} {
		k := newKit(t, func(_ *Options, d *Deps) { d.Files = echoing{} })
		k.events.Close()
		n := nonce()
		m := k.accept("m1")
		p := m.seal(tt.load, n)
		own, buffer := make([]byte, len(p)), make([]byte, 0, 1<<10)
		var last []byte
		run := func() {
			copy(own, p) // it is decrypted in place
			reply, err := k.Handle(context.Background(), Request{Payload: own, Buffer: buffer})
			if err != nil {
				t.Fatal(err)
			}
			if last = reply; len(reply) == 0 {
				t.Fatal("no reply")
			}
		}
		run() // the first one makes keys
		if _, err := wire.OpenReply(m.crypt(), last, n); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := testing.AllocsPerRun(100, run); n > tt.budget && !underRace {
			t.Errorf("%s: %v allocations, budget %v", name, n, tt.budget)
		}
	}
}

func pingReturn() value.Map {
	return dict("cmd", "_return", "success", true, "return", true, "retcode", int64(0), "jid",
		"20261121093500438490", "fun", "test.ping", "fun_args", []any{})
}

func startEvent() value.Map {
	return dict("cmd", "_minion_event", "data", "Minion m1 started at "+time.ANSIC, "tag",
		"salt/minion/m1/start", "pretag", nil)
}

func benchmark(b *testing.B, payload func(m *fakeMinion) []byte) {
	k := newKit(b, nil)
	k.events.Close()
	m := k.accept("m1")
	p := payload(m)
	own, buffer := make([]byte, len(p)), make([]byte, 0, 1<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		copy(own, p)
		if _, err := k.Handle(context.Background(),
			Request{Payload: own, Buffer: buffer}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReturn(b *testing.B) {
	benchmark(b, func(m *fakeMinion) []byte {
		return m.seal(pingReturn(), nonce())
	})
}

func BenchmarkMinionEvent(b *testing.B) {
	benchmark(b, func(m *fakeMinion) []byte {
		return m.seal(startEvent(), nonce())
	})
}

func BenchmarkAuth(b *testing.B) {
	benchmark(b, func(*fakeMinion) []byte {
		return must(wire.AuthRequest{Version: 3, ID: "m1", Key: minionKey(), Nonce: nonce()}.Pack())
	})
}

func BenchmarkAuthToken(b *testing.B) {
	benchmark(b, func(*fakeMinion) []byte {
		return must(wire.AuthRequest{Version: 3, ID: "m1", Key: minionKey(), Nonce: nonce(),
			Master: clusterKey().Public(), Token: []byte(strings.Repeat("t", 76))}.Pack())
	})
}
