package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"clustermaster/salt/gather"
	"clustermaster/serve/acl"
	"clustermaster/serve/operator/operatorpb"
	"clustermaster/value"
)

// daemon stands for the packages behind the socket and records what reached it.
type daemon struct {
	published gather.Publish
	rights    *acl.Rights
	owners    map[string]string // of jobs
	server    *Server
	run       RunRequest
	change    KeyChange
	events    chan gather.Event
	closed    chan struct{} // when the first subscription ends
	once      sync.Once
	read      []int         // how many ids each read of returns named
	sent      atomic.Int64  // endless returns
	refused   chan struct{} // when nobody takes them any more
	made      atomic.Int64  // job ids
	result    any           // of runner functions, instead of the usual one
	keys      func(texts bool) []Key
	fired     gather.Event
}

func (d *daemon) NewJID(context.Context) (string, error) {
	return fmt.Sprintf("20260101000000000000_%d", d.made.Add(1)), nil
}

func (d *daemon) Publish(ctx context.Context, p gather.Publish) (gather.Published, error) {
	return d.PublishAs(ctx, p, nil)
}

func (d *daemon) PublishAs(_ context.Context, p gather.Publish,
	rights *acl.Rights) (gather.Published, error) {
	d.published, d.rights = p, rights
	if p.Tgt == "crash" {
		panic("a target that nobody thought of")
	}
	if p.Tgt == "ghost" {
		return gather.Published{Error: "Master could not resolve minions for target ghost"}, nil
	}
	return gather.Published{JID: "20260101000000000000", Minions: []string{"a", "b"},
		Missing: []string{"c"}, Incomplete: "incomplete: 1 of 256 partitions"}, nil
}

func (d *daemon) Owner(_ context.Context, jid string) (string, string, bool, error) {
	who, found := d.owners[jid]
	user, eauth, _ := strings.Cut(who, " of ")
	return user, eauth, found, nil
}

func (d *daemon) FireRawMap(tag string, data value.RawMap) {
	packed, _ := data.Pack()
	d.fired = gather.Event{Tag: tag, Data: packed}
}

func (d *daemon) C() <-chan gather.Event { return d.events }
func (d *daemon) Close()                 { d.once.Do(func() { close(d.closed) }) }

func (d *daemon) Subscribe(context.Context, string) (gather.Events, error) { return d, nil }

func (d *daemon) ReadReturns(ctx context.Context, jid string, ids []string,
	fn func(string, gather.Return) error) error {
	d.read = append(d.read, len(ids))
	if jid == "crash" {
		panic("a job that nobody thought of")
	}
	for _, id := range ids {
		if jid == "endless" {
			defer close(d.refused)
			for ctx.Err() == nil {
				d.sent.Add(1)
				if err := fn(id, gather.Return{Return: make(value.Raw, 1<<20)}); err != nil {
					return err
				}
			}
			return ctx.Err()
		}
		if id == "a" {
			if err := fn(id, gather.Return{Return: value.Raw{0xc3}, Retcode: value.Raw{0},
				Success: value.Raw{0xc3}, Out: "nested"}); err != nil {
				return err
			}
		}
	}
	if jid == "unread" {
		return errNoQuorum
	}
	return nil
}

func (d *daemon) Targets(context.Context, any, string, string) (Targeted, error) {
	return Targeted{Minions: []string{"a"}, Missing: []string{"b"},
		Incomplete: "incomplete: 1 of 256 partitions"}, nil
}

func (d *daemon) Certain(context.Context, string) ([]string, error) { return []string{"a"}, nil }

func (d *daemon) Lists(_ context.Context, texts bool) (KeyLists, error) {
	if d.keys != nil {
		return KeyLists{Keys: d.keys(texts), Local: map[string]string{"master.pub": "PEM"},
			Note: "old"}, nil
	}
	return KeyLists{Keys: []Key{{ID: "a", State: "minions", Pub: "PEM"}},
		Local: map[string]string{"master.pub": "PEM"}, Note: "old"}, nil
}

var errNoQuorum = errors.New("no quorum: 1 of 3 masters; start another one")

func (d *daemon) Change(_ context.Context, c KeyChange) (KeysChanged, error) {
	d.change = c
	if c.Action == "reject" {
		return KeysChanged{}, errNoQuorum
	}
	return KeysChanged{Changed: c.Keys, Warnings: []string{"m2 did not confirm"}}, nil
}

func (d *daemon) Run(_ context.Context, r RunRequest, out func(kind string, v any)) (RunResult,
	error) {
	d.run = r
	if d.result != nil {
		return RunResult{JID: "j", Return: d.result, Success: true}, nil
	}
	out("print", "one\n")
	out("progress", value.Map{{Key: "message", Value: "half"}})
	return RunResult{JID: "j", Return: value.Map{{Key: "b", Value: int64(1)},
		{Key: "a", Value: nil}}, Success: true, Retcode: 3, Outputter: "highstate"}, nil
}

func (d *daemon) Docs(string) value.Map { return value.Map{{Key: "test.arg", Value: "text"}} }

func start(t *testing.T) (*daemon, *Client, string) { return startWith(t, nil, t.TempDir(), nil) }

func startWith(t *testing.T, rules *acl.Rules, dir string, owners map[string]string) (*daemon,
	*Client, string) {
	t.Helper()
	d := &daemon{events: make(chan gather.Event, 1), closed: make(chan struct{}),
		refused: make(chan struct{}), owners: owners}
	deps := Deps{Minions: d, Keys: d, Runners: d, Bus: d, ACL: rules, Log: slog.New(slog.DiscardHandler),
		Status: func() Status { return Status{ID: "m1", Version: "v", Serving: true} }}
	s, err := Listen(dir, deps)
	if err != nil {
		t.Fatal(err)
	}
	d.server = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	c, err := Dial(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return d, c, dir
}

func TestEveryCallArrivesAndReturns(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	ctx := t.Context()
	p := gather.Publish{Tgt: []string{"a", "b"}, TgtType: "list",
		Fun: []string{"test.ping", "test.arg"}, JID: "j",
		Arg:  []any{[]any{}, []any{int64(1), value.Map{{Key: "__kwarg__", Value: true}}}},
		User: "fred",
		Kwargs: value.Map{{Key: "delimiter",
			Value: "|"}}, Timeout: 1500 * time.Millisecond, Patience: 3 * time.Second}
	got, err := c.Publish(ctx, p)
	if err != nil || !reflect.DeepEqual(got,
		gather.Published{JID: "20260101000000000000", Minions: []string{"a", "b"},
			Missing: []string{"c"}, Incomplete: "incomplete: 1 of 256 partitions"}) {
		t.Errorf("publish: %+v, %v", got, err)
	}
	if !reflect.DeepEqual(d.published, p) {
		t.Errorf("published %#v\nwant      %#v", d.published, p)
	}
	if got, err := c.Publish(ctx, gather.Publish{Tgt: "ghost", Fun: "test.ping"}); err != nil ||
		got.Error == "" {
		t.Errorf("publish to nobody: %+v, %v", got, err)
	}
	if d.published.User == "" {
		t.Error("a job without a user did not get the caller's name")
	}
	returns := make(map[string]gather.Return)
	err = c.ReadReturns(ctx, "j", []string{"a", "ghost"},
		func(id string, r gather.Return) error { returns[id] = r; return nil })
	if want := (gather.Return{Return: value.Raw{0xc3}, Retcode: value.Raw{0},
		Success: value.Raw{0xc3}, Out: "nested"}); err != nil || len(returns) != 1 ||
		!reflect.DeepEqual(returns["a"], want) {
		t.Errorf("returns: %+v, %v", returns, err)
	}
	want := Targeted{Minions: []string{"a"}, Missing: []string{"b"},
		Incomplete: "incomplete: 1 of 256 partitions"}
	if found, err := c.Targets(ctx, "*", "glob", ":"); err != nil ||
		!reflect.DeepEqual(found, want) {
		t.Errorf("targets: %+v, %v", found, err)
	}
	if k, err := c.Lists(ctx, true); err != nil || len(k.Keys) != 1 ||
		k.Local["master.pub"] != "PEM" || k.Note != "old" {
		t.Errorf("lists: %+v, %v", k, err)
	}
	if docs, err := c.Docs(ctx, "test"); err != nil || docs.String("test.arg") != "text" {
		t.Errorf("docs: %v, %v", docs, err)
	}
	data := value.Map{{Key: "b", Value: int64(1)}, {Key: "a", Value: "x"}}
	if err := c.Fire(ctx, "my/tag", data); err != nil {
		t.Errorf("fire: %v", err)
	}
	if got, err := d.fired.Data.Map(); err != nil || d.fired.Tag != "my/tag" ||
		!reflect.DeepEqual(got, data) {
		t.Errorf("fired %s %v, %v", d.fired.Tag, got, err)
	}
	k := KeyChange{Action: "accept", Keys: []Key{{ID: "a", State: "minions_pre"}}, KeepAESKey: true}
	if done, err := c.Change(ctx, k); err != nil || len(done.Changed) != 1 ||
		len(done.Warnings) != 1 || !reflect.DeepEqual(d.change, k) {
		t.Errorf("change: %+v, %v; arrived %+v", done, err, d.change)
	}
	k.Action = "reject"
	if _, err := c.Change(ctx, k); err == nil || err.Error() != errNoQuorum.Error() {
		t.Errorf("refused change: %v", err)
	}
}

// TestCrashOfACommand: a command that panics ends neither the master nor other commands.
func TestCrashOfACommand(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	for range 2 {
		const known = "that nobody thought of; the master's log has the details"
		if _, err := c.Publish(t.Context(), gather.Publish{Tgt: "crash", Fun: "test.ping"}); err == nil ||
			!strings.Contains(err.Error(), "a target "+known) {
			t.Errorf("publish: %v", err)
		}
		if err := c.ReadReturns(t.Context(), "crash", []string{"a"},
			func(string, gather.Return) error { return nil }); err == nil ||
			!strings.Contains(err.Error(), "a job "+known) {
			t.Errorf("read returns: %v", err)
		}
	}
	if _, err := c.Publish(t.Context(), gather.Publish{Tgt: "*", Fun: "test.ping"}); err != nil ||
		d.published.Tgt != "*" {
		t.Errorf("afterwards: %v", err)
	}
}

// TestKeysInPages: however long the lists are, no reply is large, and the lists come whole and in
// order.
func TestKeysInPages(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	for _, n := range []int{0, 1, 5000} {
		d.keys = func(texts bool) []Key {
			keys := make([]Key, n)
			for i := range keys {
				keys[i] = Key{ID: fmt.Sprintf("minion%05d", i), State: "minions_pre"}
				if texts {
					keys[i].Pub = strings.Repeat("k", 8<<10)
				}
			}
			if texts && n > 0 {
				keys[n/2].Pub = strings.Repeat("K", 3<<20) // of an older release
			}
			return keys
		}
		for _, texts := range []bool{true, false} {
			got, err := c.Lists(t.Context(), texts)
			if err != nil || !slices.Equal(got.Keys, d.keys(texts)) ||
				got.Local["master.pub"] != "PEM" || got.Note != "old" {
				t.Errorf("%d keys, texts %v: %d keys, %v, %q, %v", n, texts, len(got.Keys),
					got.Local, got.Note, err)
			}
			stream, err := c.rpc.Keys(t.Context(), &operatorpb.KeysRequest{NoTexts: !texts})
			if err != nil {
				t.Fatal(err)
			}
			pages := 0
			for {
				r, err := stream.Recv()
				if err != nil {
					break
				}
				pages++
				if len(r.Keys) > 1 && proto.Size(r) > 2*pageBytes {
					t.Errorf("a page of %d keys has %d bytes", len(r.Keys), proto.Size(r))
				}
			}
			if pages == 0 || pages > 1 != (n == 5000 && texts) {
				t.Errorf("%d keys, texts %v: %d pages", n, texts, pages)
			}
		}
	}
}

func TestRunStreamsItsOutput(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	var kinds []string
	res, err := c.Run(t.Context(), RunRequest{Fun: "test.arg", Args: []any{int64(1)},
		Kwargs: value.Map{{Key: "a", Value: "b"}}}, func(kind string, _ any) {
		kinds = append(kinds, kind)
	})
	if err != nil || res.Retcode != 3 || res.Outputter != "highstate" ||
		!reflect.DeepEqual(kinds, []string{"print", "progress"}) {
		t.Errorf("run: %+v, %v, %v", res, kinds, err)
	}
	if m, ok := res.Return.(value.Map); !ok || m[0].Key != "b" {
		t.Errorf("return lost its order: %v", res.Return)
	}
	if d.run.Fun != "test.arg" || d.run.Kwargs.String("a") != "b" || d.run.User == "" {
		t.Errorf("request arrived as %+v", d.run)
	}
}

func TestEventsEndWithTheSubscription(t *testing.T) {
	t.Parallel()
	d, c, _ := start(t)
	sub, err := c.Subscribe(t.Context(), "salt/")
	if err != nil {
		t.Fatal(err)
	}
	d.events <- gather.Event{Tag: "salt/x", Data: value.Raw{0x80}}
	if e := <-sub.C(); e.Tag != "salt/x" || len(e.Data) != 1 {
		t.Errorf("event %+v", e)
	}
	sub.Close()
	<-d.closed
}

func TestSocketIsPrivateAndNotStolen(t *testing.T) {
	t.Parallel()
	_, _, dir := start(t)
	st, err := os.Stat(filepath.Join(dir, SocketName))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v; want 0600", st.Mode(), err)
	}
	if _, err := Listen(dir, Deps{Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a second master took the socket of a live one")
	}
	if _, err := Dial(t.Context(), t.TempDir()); !errors.Is(err, ErrNoMaster) {
		t.Errorf("dial without a master: %v, want ErrNoMaster", err)
	}
}
