package master

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

func TestPeerPublish(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) {
		o.Peer = dict("m[12]", []any{"test\\.", "grains.item$"}, "m3", "no list",
			"m4", []any{"test.arg", dict("L@m1,m2", []any{"grains.get", dict("cmd.run",
				dict("args", []any{"id"}))}), dict("G@os:Debian", "status.uptime")})
		o.Nodegroups = dict("ng", "L@m1,m2")
		o.Timeout = 100 * time.Millisecond
	})
	m, other, third := k.accept("m1"), k.accept("m2"), k.accept("m3")
	limited := k.accept("m4")
	k.data.groups = dict("ng", "L@m1,m2")
	k.data.pillar["m1"], k.data.pillar["m2"] = dict("color", "blue"), dict("color", "blue-green")
	order := func(pairs ...any) value.Map {
		load := dict("cmd", "minion_pub", "fun", "test.ping", "arg", []any{}, "tgt", "m*",
			"ret", "")
		for i := 0; i < len(pairs); i += 2 {
			load = load.Set(pairs[i].(string), pairs[i+1])
		}
		return load
	}
	all, two, nobody := []any{"m1", "m2", "m3", "m4"}, []any{"m1", "m2"}, []any{}
	get := []any{"os"}
	for _, tt := range []struct {
		name string
		who  *fakeMinion
		load value.Map
		want any // the minions; nil: refused
	}{
		{"allowed", m, order(), all},
		{"of another minion", other, order(), all},
		{"by no rule", third, order(), nil},
		{"a function that is not allowed", m, order("fun", "cmd.run"), nil},
		{"a longer name", m, order("fun", "grains.items"), nil},
		{"publishing again", m, order("fun", "publish.publish"), nil},
		{"several functions", m, order("fun", "test.ping,test.echo", "arg", []any{"", "a b"}), all},
		{"one of several is not allowed", m,
			order("fun", "test.ping,cmd.run", "arg", []any{"", "id"}), nil},
		{"one of several publishes", m, order("fun", "test.ping,publish.publish", "arg",
			[]any{"", ""}), nil},
		{"without arguments", m, order().Without("arg"), nil},
		{"without ret", m, order().Without("ret"), nil},
		{"nodegroup", m, order("tgt", "ng", "tgt_type", "nodegroup"), two},
		{"unknown nodegroup", m, order("tgt", "xy", "tgt_type", "nodegroup"), nil},
		{"guessing in pillar", m, order("tgt", "color:blue*", "tgt_type", "pillar"), nil},
		{"guessing in pillar, compound", m,
			order("tgt", "I@color:b*", "tgt_type", "compound"), nil},
		{"exact pillar", m, order("tgt", "color:blue", "tgt_type", "pillar"), []any{"m1"}},
		{"nobody", m, order("tgt", "x*"), nobody},
		{"by target, everywhere", limited, order("fun", "test.arg"), all},
		{"by target", limited, order("fun", "grains.get", "arg", get, "tgt", "m[12]"), two},
		{"by target, one", limited, order("fun", "grains.get", "arg", get, "tgt", "m2"), []any{"m2"}},
		{"by target, beyond it", limited, order("fun", "grains.get", "arg", get), nil},
		{"by target, another function", limited, order("fun", "grains.set", "tgt", "m1"), nil},
		{"by target, another minion's rule", m, order("fun", "grains.get", "tgt", "m1"), nil},
		{"by target, nobody", limited, order("fun", "grains.get", "tgt", "x*"), nobody},
		{"by target and argument", limited, order("fun", "cmd.run", "arg", []any{"id"}, "tgt", "m1"),
			[]any{"m1"}},
		{"by target, another argument", limited,
			order("fun", "cmd.run", "arg", []any{"ls"}, "tgt", "m1"), nil},
		{"by target, several functions", limited, order("fun", "grains.get,test.arg", "arg",
			[]any{"os", "1"}, "tgt", "m1"), []any{"m1"}},
		{"by target, find_job", limited, order("fun", "saltutil.find_job", "tgt", "m1"), nil},
		{"by target, unknown grains", limited, order("fun", "status.uptime", "tgt", "m1"),
			nil},
	} {
		got := tt.who.call(tt.load).(value.Map)
		if tt.want == nil {
			if len(got) != 0 {
				t.Errorf("%s: %v", tt.name, got)
			}
			continue
		}
		if !same(field(got, "minions"), tt.want) {
			t.Errorf("%s: %v", tt.name, got)
		}
		if jid := field(got, "jid"); fmt.Sprint(tt.want) == "[]" && jid != int64(0) ||
			fmt.Sprint(tt.want) != "[]" && !validJID(fmt.Sprint(jid)) {
			t.Errorf("%s: jid %v", tt.name, jid)
		}
	}

	jid := m.call(order("arg", []any{"1", "a=yes",
		dict("__kwarg__", true, "b", "2")})).(value.Map).String("jid")
	if load := k.jobs.loads[jid]; load.String("user") != "root" ||
		!same(field(load, "arg"), []any{int64(1),
			dict("__kwarg__", true, "a", true, "b", int64(2))}) {
		t.Errorf("load %v", load)
	}
	if got := m.call(dict("cmd", "pub_ret", "jid", jid)); !same(got, dict()) {
		t.Errorf("before any return: %v", got)
	}
	other.call(dict("cmd", "_return", "jid", jid, "return", "pong", "retcode", int64(0), "success",
		true, "fun", "test.ping", "out", "nested"))
	if got := m.call(dict("cmd", "pub_ret", "jid", jid)); !same(got,
		dict("m2", dict("ret", "pong", "out", "nested"))) {
		t.Errorf("own job: %v", got)
	}
	if got := other.call(dict("cmd", "pub_ret", "jid", jid)); !same(got, dict()) {
		t.Errorf("another's job: %v", got)
	}
	if got := m.call(dict("cmd", "pub_ret", "jid", "20200101000000000000")); got != "" {
		t.Errorf("unknown job: %v", got)
	}
	if got := m.call(dict("cmd", "pub_ret")); !same(got, dict()) {
		t.Errorf("no job: %v", got)
	}
	for _, tt := range []struct {
		cmd  string
		tmo  any
		runs bool
	}{{"minion_publish", "soon", false}, {"minion_publish", "1.5", false},
		{"minion_publish", 1.5, true}, {"minion_publish", " 1 ", true},
		{"minion_pub", "soon", true}, {"minion_pub", 1.5, true}} {
		jobs := len(k.jobs.loads)
		got := m.call(order("cmd", tt.cmd, "tmo", tt.tmo))
		if runs := len(k.jobs.loads) > jobs; runs != tt.runs || !runs && !same(got, dict()) {
			t.Errorf("%s with the timeout %v: published: %v, %v", tt.cmd, tt.tmo, runs, got)
		}
	}
	if got := m.call(order("cmd", "minion_publish", "tgt", "x*")); !same(got, dict()) {
		t.Errorf("nobody: %v", got)
	}
	if got := m.call(order("cmd", "minion_publish", "form", "full")).(value.Map); len(got) != 1 ||
		got.String("__jid__") == "" {
		t.Errorf("nobody returned: %v", got)
	}
	k.data.incomplete = "incomplete: 3 of 256 partitions"
	jobs, refused := len(k.jobs.loads), refusedFor(t, k, "peer")
	m.call(order("tgt", "color:blue", "tgt_type", "pillar"))
	if n := refusedFor(t, k, "peer") - refused; len(k.jobs.loads) > jobs || n != 0 {
		t.Errorf("with pillars unread: %d jobs, %v refusals", len(k.jobs.loads)-jobs, n)
	}
}

// TestPeerMemory: what a minion's job returned is gathered only as far as there is memory for it.
func TestPeerMemory(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.Peer = dict(".*", []any{".*"}) })
	m, other := k.accept("m1"), k.accept("m2")
	jid := m.call(dict("cmd", "minion_pub", "tgt", "*", "fun", "test.ping", "arg", []any{},
		"ret", "")).(value.Map).String("jid")
	long := strings.Repeat("x", 1<<20)
	other.call(dict("cmd", "_return", "jid", jid, "return", long, "retcode", int64(0), "success", true,
		"fun", "test.ping"))
	const few = 1 << 12 // what the request itself takes
	for room, served := range map[int64]bool{int64(len(long)) + few: true, int64(len(long)) - few: false} {
		before := refusedFor(t, k, "memory")
		s := &fakeSender{room: room}
		reply, err := k.Handle(t.Context(), Request{Sender: s,
			Payload: m.seal(dict("cmd", "pub_ret", "jid", jid), nonce())})
		if (err == nil && len(reply) > len(long)) != served {
			t.Errorf("room for %d bytes: a reply of %d bytes, %v", room, len(reply), err)
		}
		if refused := refusedFor(t, k, "memory") > before; refused == served {
			t.Errorf("room for %d bytes: refused %v", room, refused)
		}
	}
	// A job that was published is not asked for again.
	answered, sent := make(chan error, 1), make(chan string, 1)
	k.subs.mu.Lock()
	k.subs.onPub = func(p Publication) { sent <- p.JID }
	k.subs.mu.Unlock()
	go func() {
		_, err := k.Handle(t.Context(), Request{Sender: &fakeSender{room: few}, Payload: m.seal(dict("cmd",
			"minion_publish", "tgt", "m2", "fun", "test.ping", "arg", []any{}, "ret", "", "tmo", int64(60)),
			nonce())})
		answered <- err
	}()
	other.call(dict("cmd", "_return", "jid", <-sent, "return", long, "retcode", int64(0), "success", true,
		"fun", "test.ping"))
	if err := <-answered; err != nil {
		t.Errorf("after a publication: %v", err)
	}
}

// TestPeerTargets: a target that a minion publishes to needs a turn, whatever its type, and has the
// limits of minions; the refusal is counted once.
func TestPeerTargets(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64) + "!"
	k := newKit(t, func(o *Options, _ *Deps) {
		o.Peer = dict(".*", []any{"test\\.", dict("*", []any{"grains.items"})})
		o.Nodegroups = dict("ng", "L@m1")
	})
	m := k.accept("m1")
	k.accept(long)
	k.data.groups = dict("ng", "L@m1")
	order := func(fun, tgt, tgtType string) value.Map {
		return dict("cmd", "minion_pub", "fun", fun, "arg", []any{}, "tgt", tgt, "tgt_type",
			tgtType, "ret", "")
	}
	for _, fun := range []string{"test.ping", "grains.items"} {
		before := refusedFor(t, k, "target_cost")
		if got := m.call(order(fun, "(?=a)(a+)+$", "pcre")); !same(got, dict()) {
			t.Errorf("%s on an endless pattern: %v", fun, got)
		}
		if n := refusedFor(t, k, "target_cost") - before; n != 1 {
			t.Errorf("%s on an endless pattern: %v refusals", fun, n)
		}
	}
	for range cap(k.resolving) {
		k.resolving <- struct{}{}
	}
	over, cancel := context.WithCancel(t.Context()) // it would wait for the turn no longer
	cancel()
	sent := k.subs.count()
	for _, tt := range [][2]string{{"m1", "glob"}, {"m1", "list"}, {"m.", "pcre"}, {"ng", "nodegroup"},
		{"os:x", "grain"}, {"os:x", "pillar"}, {"m1", "compound"}} {
		for _, fun := range []string{"test.ping", "grains.items"} {
			before := refusedFor(t, k, "busy_targets")
			load := order(fun, tt[0], tt[1]).Set("id", "m1")
			if _, err := k.Handle(over, Request{Payload: m.seal(load, nonce())}); err != nil {
				t.Errorf("%s on %v: %v", fun, tt, err)
			}
			if n := refusedFor(t, k, "busy_targets") - before; n != 1 {
				t.Errorf("%s on %v: %v refusals", fun, tt, n)
			}
		}
	}
	if k.subs.count() != sent {
		t.Error("something is published without a turn")
	}
}

func TestPeerRun(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, d *Deps) {
		o.PeerRun = dict("m1", []any{"manage.up"})
		d.Runner = func(_ context.Context, fun string, args []any, kwargs value.Map) (any, error) {
			if len(args) > 0 && args[0] == "fail" {
				return nil, errors.New("no")
			}
			if len(args) > 0 && args[0] == "tell" {
				return "'manage.up' is not available.", errors.New("no")
			}
			return dict("fun", fun, "args", append([]any{}, args...), "kwargs",
				orEmpty(kwargs)), nil
		}
	})
	m, other := k.accept("m1"), k.accept("m2")
	run := dict("cmd", "minion_runner", "fun", "manage.up", "arg", []any{"x", "n=5"})
	if got := m.call(run); !same(got, dict("fun", "manage.up", "args", []any{"x"}, "kwargs",
		dict("n", int64(5)))) {
		t.Errorf("allowed: %v", got)
	}
	for name, got := range map[string]any{
		"by no rule": other.call(run), "not allowed": m.call(run.Without("fun").Set("fun",
			"key.list")), "no arguments": m.call(run.Without("arg")),
	} {
		if !same(got, dict()) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := m.call(dict("cmd", "minion_runner", "fun", "manage.up", "arg",
		[]any{"fail"})); got != "" {
		t.Errorf("a runner that fails: %v", got)
	}
	if got := m.call(dict("cmd", "minion_runner", "fun", "manage.up", "arg",
		[]any{"tell"})); got != "'manage.up' is not available." {
		t.Errorf("a runner that says why it fails: %v", got)
	}
}

// pushes notes what is pushed.
type pushes struct {
	got []string
	err error
}

func (p *pushes) Append(_ context.Context, id, path string, loc, size int64, data []byte) (bool,
	error) {
	p.got = append(p.got, fmt.Sprintf("%s %s %d %d %s", id, path, loc, size, data))
	return p.err == nil, p.err
}

func TestFileRecv(t *testing.T) {
	t.Parallel()
	p := &pushes{}
	k := newKit(t, func(o *Options, d *Deps) {
		o.FileRecv, o.FileRecvMaxSize, d.Pushed = true,
			10, p
	})
	m := k.accept("m1")
	push := func(path any, loc any, data any, more ...any) value.Map {
		return append(dict("cmd", "_file_recv", "path", path, "loc", loc, "data", data),
			dict(more...)...)
	}
	for _, tt := range []struct {
		name string
		load value.Map
		want bool
	}{
		{"a file", push([]any{"etc", "x"}, int64(0), []byte("abc"), "size", int64(3)), true},
		{"a later piece", push([]any{"etc", "x"}, int64(3), []byte("de")), true},
		{"as large as allowed", push([]any{"big"}, int64(5), []byte("12345")), true},
		{"too large", push([]any{"big"}, int64(6), []byte("12345")), false},
		{"said to be too large", push([]any{"big"}, int64(0), []byte("1"), "size", int64(11)),
			false},
		{"far away", push([]any{"big"}, int64(1)<<62, []byte("1")), false},
		{"before the file", push([]any{"x"}, int64(-1), []byte("1")), false},
		{"path is text", push("etc/x", int64(0), []byte("1")), false},
		{"no path", push([]any{}, int64(0), []byte("1")), false},
		{"upwards", push([]any{"..", "x"}, int64(0), []byte("1")), false},
		{"upwards inside", push([]any{"a/../../x"}, int64(0), []byte("1")), false},
		{"absolute", push([]any{"/etc/x"}, int64(0), []byte("1")), false},
		{"absolute later", push([]any{"a", "/etc/x"}, int64(0), []byte("1")), false},
		{"the folder itself", push([]any{"a", ".."}, int64(0), []byte("1")), false},
		{"NUL", push([]any{"a\x00b"}, int64(0), []byte("1")), false},
		{"a number in the path", push([]any{int64(1)}, int64(0), []byte("1")), false},
		{"no loc", dict("cmd", "_file_recv", "path", []any{"x"}, "data", []byte("1")), false},
	} {
		before := len(p.got)
		if got := m.call(tt.load); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		if kept := len(p.got) > before; kept != tt.want {
			t.Errorf("%s: kept %v", tt.name, kept)
		}
	}
	if p.got[0] != "m1 etc/x 0 3 abc" || p.got[1] != "m1 etc/x 3 -1 de" {
		t.Error(p.got)
	}
	off := newKit(t, func(o *Options, d *Deps) { d.Pushed = p })
	if got := off.accept("m1").call(push([]any{"x"}, int64(0), []byte("1"))); got != false {
		t.Errorf("file_recv off: %v", got)
	}
}
