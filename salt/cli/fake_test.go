package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/config"
	"clustermaster/salt/gather"
	"clustermaster/serve/operator"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// minion answers jobs of the fake daemon.
type minion struct {
	answer  any           // value of a return
	retcode any           // nil: 0
	out     string        // outputter of a return
	after   time.Duration // before it returns
	silent  bool          // never returns, and doesn't answer a ping
}

// fakeDaemon is a master with minions, in memory. It answers the calls of the commands.
type fakeDaemon struct {
	incomplete string // said of every target but lists
	minions    map[string]minion
	keys       []operator.Key
	local      map[string]string
	note       string
	runner     func(r operator.RunRequest, out func(string, any)) (operator.RunResult, error)
	refuse     string       // error text of every publication
	home       string       // of the user who runs commands
	showJID    bool         // the option show_jid
	made       atomic.Int64 // job ids

	mu        sync.Mutex
	published []gather.Publish
	logins    []operator.Credentials
	changes   []operator.KeyChange
	fired     []string // tags
	noEvents  bool     // Fire refuses all
	streams   []*fakeEvents
	work      sync.WaitGroup
}

type fakeEvents struct {
	prefix string
	c      chan gather.Event
	once   sync.Once
	done   chan struct{}
}

func (e *fakeEvents) C() <-chan gather.Event { return e.c }
func (e *fakeEvents) Close()                 { e.once.Do(func() { close(e.done) }) }

func (d *fakeDaemon) matching(tgt any, kind string) (ids []string) {
	for id := range d.minions {
		switch kind {
		case "list":
			for _, want := range tgt.([]string) {
				if want == id {
					ids = append(ids, id)
				}
			}
		default:
			if fnmatch.Match(tgt.(string), id) {
				ids = append(ids, id)
			}
		}
	}
	sort.Strings(ids)
	return ids
}

func (d *fakeDaemon) Login(_ context.Context, c operator.Credentials) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logins = append(d.logins, c)
	if c.Token == "tok" || c.Password == "right" {
		return "carol", nil
	}
	return "", nil
}

func (d *fakeDaemon) MakeToken(_ context.Context, c operator.Credentials) (string, error) {
	if c.Password == "right" {
		return "tok", nil
	}
	return "", nil
}

func (d *fakeDaemon) Fire(ctx context.Context, tag string, _ value.Map) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fired = append(d.fired, tag)
	if d.noEvents {
		return errors.New("only root may fire events")
	}
	return ctx.Err()
}

func (d *fakeDaemon) NewJID(context.Context) (string, error) {
	return fmt.Sprintf("20261121093513%06d", 900000+d.made.Add(1)), nil
}

func (d *fakeDaemon) Publish(ctx context.Context, p gather.Publish) (gather.Published, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published = append(d.published, p)
	if d.refuse != "" {
		return gather.Published{Error: d.refuse}, nil
	}
	if p.JID == "" {
		p.JID = fmt.Sprintf("20261121093513%06d", len(d.published))
	}
	ids := d.matching(p.Tgt, p.TgtType)
	if len(ids) == 0 {
		return gather.Published{Error: "Master could not resolve minions for target x"}, nil
	}
	for _, id := range ids {
		m := d.minions[id]
		if m.silent {
			continue
		}
		answer, code := m.answer, m.retcode
		switch p.Fun {
		case "saltutil.find_job":
			answer, code = value.Map{}, nil
			if m.after > 0 { // a slow minion still runs it
				answer = value.Map{{Key: "jid", Value: p.JID}}
			}
			m.after = 0
		case "test.ping":
			if m.answer != true {
				answer, code, m.after = true, nil, 0
			}
		case "sys.list_functions":
			answer, code = []any{"test.ping", "x." + id}, nil
		}
		if code == nil {
			code = int64(0)
		}
		d.work.Go(func() { d.answer(ctx, p.JID, id, m, answer, code) })
	}
	published := gather.Published{JID: p.JID, Minions: ids}
	if p.TgtType != "list" {
		published.Incomplete = d.incomplete
	}
	if list, ok := p.Tgt.([]string); ok {
		for _, id := range list {
			if _, known := d.minions[id]; !known {
				published.Missing = append(published.Missing, id)
			}
		}
	}
	return published, nil
}

func (d *fakeDaemon) answer(ctx context.Context, jid, id string, m minion, val, code any) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(m.after):
	}
	data := value.Map{{Key: "id", Value: id}, {Key: "return", Value: val},
		{Key: "retcode", Value: code}, {Key: "success", Value: true}}
	if m.out != "" {
		data = append(data, value.Pair{Key: "out", Value: m.out})
	}
	packed, err := value.Pack(data)
	if err != nil {
		panic(err)
	}
	tag := "salt/job/" + jid + "/ret/" + id
	d.mu.Lock()
	streams := append([]*fakeEvents(nil), d.streams...)
	d.mu.Unlock()
	for _, s := range streams {
		if strings.HasPrefix(tag, s.prefix) {
			select {
			case s.c <- gather.Event{Tag: tag, Data: packed}:
			case <-s.done:
			}
		}
	}
}

func (d *fakeDaemon) Subscribe(_ context.Context, prefix string) (gather.Events, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &fakeEvents{prefix: prefix, c: make(chan gather.Event), done: make(chan struct{})}
	d.streams = append(d.streams, e)
	return e, nil
}

func (d *fakeDaemon) ReadReturns(context.Context, string, []string,
	func(string, gather.Return) error) error {
	return nil
}

func (d *fakeDaemon) Targets(_ context.Context, tgt any, kind, _ string) (operator.Targeted,
	error) {
	return operator.Targeted{Minions: d.matching(tgt, kind), Incomplete: d.incomplete}, nil
}

func (d *fakeDaemon) Run(_ context.Context, r operator.RunRequest,
	out func(string, any)) (operator.RunResult, error) {
	return d.runner(r, out)
}

func (d *fakeDaemon) Docs(_ context.Context, prefix string) (value.Map, error) {
	all := value.Map{{Key: "test.arg", Value: "\n    Return the arguments.\n    "},
		{Key: "jobs.active", Value: "\n    List.\n    "}}
	out := value.Map{}
	for _, p := range all {
		if strings.HasPrefix(p.Key.(string), strings.TrimSuffix(prefix, "*")) {
			out = append(out, p)
		}
	}
	return out, nil
}

func (d *fakeDaemon) Lists(_ context.Context, texts bool) (operator.KeyLists, error) {
	keys := slices.Clone(d.keys)
	for i := range keys {
		if !texts {
			keys[i].Pub = ""
		}
	}
	return operator.KeyLists{Keys: keys, Local: d.local, Note: d.note}, nil
}

func (d *fakeDaemon) Change(_ context.Context, k operator.KeyChange) (operator.KeysChanged, error) {
	d.changes = append(d.changes, k)
	return operator.KeysChanged{Changed: k.Keys}, nil
}

func (d *fakeDaemon) Close() error { return nil }

// ran is the outcome of a command.
type ran struct {
	code           int
	stdout, stderr string
}

type command func(context.Context, []string, Env) int

// newEnv returns the Env of a command against a daemon; nil means that no master runs.
func newEnv(d *fakeDaemon, stdin string) (env Env, out, errs *bytes.Buffer) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	return Env{
		Stdin: strings.NewReader(stdin), Stdout: out, Stderr: errs,
		Getenv: func(name string) string {
			switch {
			case name == "HOME" && d != nil:
				return d.home
			case name == "SALT_CONFIG_DIR":
				return "/" // a folder that exists
			}
			return ""
		},
		Dial: func(context.Context, string) (Daemon, error) {
			if d == nil {
				return nil, fmt.Errorf("dial: %w", operator.ErrNoMaster)
			}
			return d, nil
		},
		Load: func(string, func(string) string) (*config.Options, []config.Warning, error) {
			return &config.Options{
				SockDir: "/run/m", HashType: "sha256", Color: true, StripColors: true,
				StateOutput: "full", StateVerbose: true, ConfFile: "/etc/salt/master",
				Nodegroups: value.Map{{Key: "blue", Value: "web*"}},
				Timeout:    5 * time.Second, GatherJobTimeout: 10 * time.Second,
				ShowJID: d != nil && d.showJID,
				Extra:   map[string]any{"id": "m1"},
			}, nil, nil
		},
	}, out, errs
}

// run calls a command against a daemon; nil means that no master runs. words is the command line.
func run(t *testing.T, cmd command, d *fakeDaemon, stdin string, words ...string) ran {
	t.Helper()
	env, out, errs := newEnv(d, stdin)
	ctx, cancel := context.WithCancel(t.Context())
	code := cmd(ctx, words, env)
	cancel()
	if d != nil {
		d.work.Wait()
	}
	return ran{code, out.String(), errs.String()}
}

func (r ran) check(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || r.stdout != stdout || r.stderr != stderr {
		t.Errorf("exit %d, want %d\n--- stdout\n%s--- want\n%s--- stderr\n%s--- want\n%s", r.code,
			code, r.stdout, stdout, r.stderr, stderr)
	}
}
