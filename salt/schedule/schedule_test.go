package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/value"
	"clustermaster/value/dateutil"
	"clustermaster/value/yaml11"
)

// masters share one state, as Raft has it; each may believe to lead, and may be cut off.
type masters struct {
	t     *testing.T
	state *fsm.State
	// clocks, by node; set before the masters start
	behind map[string]time.Duration

	mu    sync.Mutex // guards what follows, and Apply
	runs  []string   // TIME NAME NODE
	fired []value.Map
	given []string                 // to returners
	every []string                 // schedule_returner
	going map[string]chan struct{} // of runs that wait
	block bool                     // runs wait
	down  map[string]bool
}

func newMasters(t *testing.T) *masters {
	t.Helper()
	m := &masters{t: t, state: fsm.New(), going: map[string]chan struct{}{},
		down: map[string]bool{}}
	m.state.Apply(1, &fsm.Found{
		Cluster: fsm.Cluster{UUID: "u", Partitions: 1}, AES: "aes", Session: []byte("s"),
		Member: fsm.Member{Node: fsm.NodeName("m1", "1"), ID: "m1", Incarnation: "1",
			Addr: "127.0.0.1:4520", SPKI: [32]byte{1}},
	})
	if _, ok := m.state.Cluster(); !ok {
		t.Fatal("not founded")
	}
	return m
}

// one is one master's view.
type one struct {
	*masters
	node string

	at       sync.Mutex // guards what follows
	leads    bool
	cut      bool
	proposed int
	unlucky  bool          // the next claim of a run gets no answer
	late     []fsm.Command // it is applied later
}

func (o *one) set(leads, cut bool) {
	o.at.Lock()
	defer o.at.Unlock()
	o.leads, o.cut = leads, cut
}

func (o *one) Leading() bool {
	o.at.Lock()
	defer o.at.Unlock()
	return o.leads
}

func (o *one) Scheduled(name string) (fsm.Scheduled, bool) { return o.state.Scheduled(name) }
func (o *one) Entries() []fsm.Scheduled                    { return o.state.ScheduledEntries() }

func (o *one) Alive(node string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.down[node]
}

func (o *one) Propose(_ context.Context, c fsm.Command) (fsm.Result, error) {
	entry, err := fsm.Encode(c)
	if err != nil {
		return fsm.Result{}, err
	}
	if c, err = fsm.Decode(entry); err != nil {
		return fsm.Result{}, err
	}
	o.at.Lock()
	o.proposed++
	cut := o.cut
	if claim, ok := c.(*fsm.ClaimRun); ok && claim.JID != "" && o.unlucky {
		o.unlucky, o.late, cut = false, append(o.late, c), true
	}
	o.at.Unlock()
	if cut {
		return fsm.Result{}, errors.New("no quorum")
	}
	return o.apply(c), nil
}

func (m *masters) apply(c fsm.Command) fsm.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, _ := m.state.Apply(m.state.AppliedIndex()+1, c)
	return r
}

// start runs a master's schedule in the test's bubble.
func (m *masters) start(ctx context.Context, node, option string, alone bool) *one {
	m.t.Helper()
	v, err := yaml11.Load([]byte(option))
	if err != nil {
		m.t.Fatal(err)
	}
	opts, _ := v.(value.Map)
	entries, problems := Read(opts)
	if len(problems) > 0 {
		m.t.Fatal(problems)
	}
	o := &one{masters: m, node: node}
	n := 0
	s := New(Deps{
		Cluster: o, NewJID: func() string { n++; return fmt.Sprintf("%s-%d", node, n) },
		Now: func() time.Time { return time.Now().Add(-m.behind[node]) },
		Run: func(ctx context.Context, jid, fun string, _ []any, _ value.Map) Outcome {
			m.mu.Lock()
			m.runs = append(m.runs, time.Now().UTC().Format("15:04:05 ")+node)
			hold := make(chan struct{})
			if m.block {
				m.going[jid] = hold
			} else {
				close(hold)
			}
			m.mu.Unlock()
			select {
			case <-hold:
			case <-ctx.Done():
			}
			out := Outcome{Return: "of " + fun, Retcode: 3}
			if fun == "fails" {
				out.Err = errors.New("broken")
			}
			return out
		},
		Fire: func(tag string, data value.Map) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if tag != "__schedule_return" {
				m.t.Errorf("event %s", tag)
			}
			m.fired = append(m.fired, data)
		},
		Return: func(returner string, result value.Map) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.given = append(m.given, fmt.Sprint(returner, " ", result.Without("pid")))
		},
	}, Options{Entries: entries, ID: node +
		"_master", Node: node, Alone: alone, Window: time.Minute,
		ClockLimit: 30 * time.Second, Returners: m.every}, nil, nil)
	go func() { _ = s.Run(ctx) }()
	return o
}

// seconds are the seconds in which something ran, and who did.
func (m *masters) took() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.runs)
}

func inBubble(t *testing.T, f func(t *testing.T, ctx context.Context, m *masters)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f(t, ctx, newMasters(t))
		cancel()
		synctest.Wait()
	})
}

// Two that believe to lead at the same time run each period once, between them.
func TestTwoLeaders(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		for _, node := range []string{"m1", "m2", "m3"} {
			m.start(ctx, node, "{j: {function: f, seconds: 2}}", false).set(true, false)
		}
		time.Sleep(60*time.Second + time.Millisecond)
		var at []string
		for _, r := range m.took() {
			second, _, _ := strings.Cut(r, " ")
			at = append(at, second)
		}
		if len(at) != 30 || len(slices.Compact(slices.Clone(at))) != 30 {
			t.Errorf("%d runs: %s", len(at), at)
		}
	})
}

// A new leader goes on where the last one was; one that is cut off runs nothing, however long it
// believes to lead.
func TestLeaderChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		const option = "{j: {function: f, seconds: 10}}"
		a, b := m.start(ctx, "m1", option, false), m.start(ctx, "m2", option, false)
		a.set(true, false)
		time.Sleep(25*time.Second + time.Millisecond)
		a.set(true, true) // a partition
		time.Sleep(3 * time.Second)
		b.set(true, false)
		time.Sleep(20 * time.Second)
		a.set(false, false)
		time.Sleep(12 * time.Second)
		want := []string{"00:00:01 m1", "00:00:11 m1", "00:00:21 m1", "00:00:31 m2", "00:00:41 m2",
			"00:00:51 m2"}
		if got := m.took(); !slices.Equal(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// A new leader whose clock is behind, by as much as clocks may differ, does not run again what ran
// at its time by the former leader's.
func TestTheNextClockIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		const option = "{j: {function: f, cron: '*/5 * * * *'}}"
		m.behind = map[string]time.Duration{"m1": -30 * time.Second, "m2": 30 * time.Second}
		a, b := m.start(ctx, "m1", option, false), m.start(ctx, "m2", option, false)
		a.set(true, false)
		time.Sleep(5*time.Minute - 30*time.Second + time.Millisecond)
		a.set(false, false)
		b.set(true, false)
		time.Sleep(6 * time.Minute)
		if got, want := m.took(), []string{"00:04:30 m1", "00:10:30 m2"}; !slices.Equal(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// What was missed while nobody led is run once; a time of the day that is past by more than the
// window is not.
func TestNobodyLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		o := m.start(ctx, "m1",
			"{j: {function: f, seconds: 10, run_on_start: False}, k: {function: f, cron: '*/5 * * * *'}}", false)
		o.set(true, false)
		time.Sleep(5 * time.Second)
		o.set(false, false)
		time.Sleep(400*time.Second - time.Millisecond)
		o.set(true, false)
		time.Sleep(4 * time.Second)
		if got, want := m.took(), []string{"00:06:45 m1"}; !slices.Equal(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// maxrunning counts the runs that other masters began, as long as those are there; a master that
// starts anew has none.
func TestMaxRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		const option = "{j: {function: f, seconds: 5}}"
		m.block = true
		first, crash := context.WithCancel(ctx)
		a, b := m.start(first, "m1", option, false), m.start(ctx, "m2", option, false)
		a.set(true, false)
		time.Sleep(12*time.Second + time.Millisecond)
		a.set(false, false)
		b.set(true, false)
		time.Sleep(10 * time.Second) // the run on m1 goes on: none here
		if got := m.took(); len(got) != 1 {
			t.Fatalf("runs beside one that goes on: %s", got)
		}
		m.mu.Lock()
		m.down["m1"] = true
		m.mu.Unlock()
		// m1 can't be reached: it counts no more; the one on m2 goes on then
		time.Sleep(10 * time.Second)
		if got := m.took(); len(got) != 2 || !strings.HasSuffix(got[1], " m2") {
			t.Fatalf("after the loss of m1: %s", got)
		}
		crash()
		m.mu.Lock()
		m.down["m1"] = false
		m.mu.Unlock()
		m.start(ctx, "m1", option, false) // again: what it ran is over
		time.Sleep(2 * time.Second)
		e, _ := m.state.Scheduled("j")
		if len(e.Runs) != 1 || e.Runs[0].Node != "m2" {
			t.Errorf("runs that go on: %+v", e.Runs)
		}
		m.mu.Lock()
		for _, hold := range m.going {
			close(hold)
		}
		m.going, m.block = map[string]chan struct{}{}, false
		m.mu.Unlock()
		time.Sleep(20 * time.Second)
		if got := m.took(); len(got) < 5 {
			t.Errorf("after the end of all: %s", got)
		}
		if e, _ = m.state.Scheduled("j"); len(e.Runs) != 0 {
			t.Errorf("runs that go on at the end: %+v", e.Runs)
		}
	})
}

// TestLostClaim: the leader stalls, its claim gets no answer and is applied after all, as an entry
// that lay in a follower's log. The run never begins, so it holds no place of maxrunning: the entry
// runs on in its next period, whoever leads then.
func TestLostClaim(t *testing.T) {
	for _, stays := range []bool{true, false} {
		t.Run(fmt.Sprintf("the leader stays %v", stays), func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
				const option = "{j: {function: f, seconds: 10}}"
				a, b := m.start(ctx, "m1", option, false), m.start(ctx, "m2", option, false)
				a.set(true, false)
				time.Sleep(5*time.Second + time.Millisecond)
				a.at.Lock()
				a.unlucky = true
				a.at.Unlock()
				time.Sleep(6 * time.Second) // 00:00:11 has no answer
				a.set(stays, true)
				b.set(!stays, false)
				a.at.Lock()
				late := a.late
				a.at.Unlock()
				if len(late) != 1 || m.apply(late[0]).Refused != "" {
					t.Fatalf("late claims %+v", late)
				}
				if e, _ := m.state.Scheduled("j"); len(e.Runs) != 1 {
					t.Fatalf("the late claim has no run: %+v", e)
				}
				time.Sleep(3 * time.Second)
				a.set(stays, false)
				time.Sleep(3 * time.Second)
				a.at.Lock()
				before := a.proposed
				a.at.Unlock()
				time.Sleep(3 * time.Second) // 00:00:17 to 19
				a.at.Lock()
				if a.proposed != before {
					t.Errorf("%d proposals with nothing to record", a.proposed-before)
				}
				a.at.Unlock()
				time.Sleep(20 * time.Second)
				leader := "m2"
				if stays {
					leader = "m1"
				}
				want := []string{"00:00:01 m1", "00:00:21 " + leader, "00:00:31 " + leader}
				if got := m.took(); !slices.Equal(got, want) {
					t.Errorf("got %s, want %s", got, want)
				}
				if e, _ := m.state.Scheduled("j"); len(e.Runs) != 0 {
					t.Errorf("runs in the state at the end: %+v", e.Runs)
				}
			})
		})
	}
}

// A start of a stand-alone master is one of the schedule, as in Salt; one of a member of a cluster
// is not.
func TestStart(t *testing.T) {
	for _, alone := range []bool{true, false} {
		t.Run(fmt.Sprintf("alone %v", alone), func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
				const option = "{j: {function: f, hours: 1}}"
				first, stop := context.WithCancel(ctx)
				m.start(first, "m1", option, alone).set(true, false)
				time.Sleep(3 * time.Second)
				stop()
				synctest.Wait()
				m.start(ctx, "m1", option, alone).set(true, false)
				time.Sleep(3 * time.Second)
				want := 1
				if alone {
					want = 2
				}
				if got := m.took(); len(got) != want {
					t.Errorf("runs %s, want %d", got, want)
				}
			})
		})
	}
}

// An entry that was edited begins anew; one that nobody has any more is forgotten after a week.
func TestEdited(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		first, stop := context.WithCancel(ctx)
		for name, age := range map[string]time.Duration{"older": 8 * 24 * time.Hour,
			"old": 6 * 24 * time.Hour} {
			m.state.Apply(2, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: name,
				At: time.Now().Add(-age)}})
		}
		m.start(first, "m1", "{j: {function: f, hours: 1}}", false).set(true, false)
		time.Sleep(3 * time.Second)
		stop()
		synctest.Wait()
		m.start(ctx, "m1", "{j: {function: f, hours: 2}}", false).set(true, false)
		time.Sleep(3 * time.Second)
		if got := m.took(); len(got) != 2 {
			t.Errorf("runs %s, want 2", got)
		}
		if _, ok := m.state.Scheduled("old"); !ok {
			t.Error("forgotten too soon: another master may have it")
		}
		if _, ok := m.state.Scheduled("older"); ok {
			t.Error("not forgotten")
		}
	})
}

func TestReturnEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		m.start(ctx, "m1", `{j: {function: f, hours: 1, args: [a], kwargs: {k: v}, metadata: {x: y}}, bad: {function: fails, hours: 1}, no: {function: f, hours: 1, return_job: False},
 nc: {function: f, hours: 1, return_job: nocache}, dry: {function: f, hours: 1, dry_run: True}}`, false).set(true, false)
		time.Sleep(3 * time.Second)
		got := map[string]string{}
		m.mu.Lock()
		fired := slices.Clone(m.fired)
		m.mu.Unlock()
		for _, e := range fired {
			keys := ""
			for _, p := range e {
				keys += fmt.Sprint(p.Key, " ")
				if p.Key == "pid" || p.Key == "metadata" {
					continue
				}
				got[e.String("schedule")] += fmt.Sprintf("%v=%v ", p.Key, p.Value)
			}
			if keys != "cmd id fun fun_args schedule jid pid return retcode success " &&
				keys != "cmd id fun fun_args schedule jid metadata pid return retcode success " {
				t.Errorf("keys of %s: %s", e.String("schedule"), keys)
			}
			if v, ok := e.Get("metadata"); ok {
				meta, _ := v.(value.Map)
				if meta.String("x") != "y" || meta.String("_TOS") != "0000" ||
					meta.String("_TS") != time.Unix(946684801, 0).Format(time.ANSIC) ||
					meta.String("_TT") != "2000 January 01 Sat 00 01" {
					t.Errorf("metadata %v", meta)
				}
			}
		}
		want := map[string]string{
			"j":   "cmd=_return id=m1_master fun=f fun_args=[a [{k v}]] schedule=j jid=req return=of f retcode=3 success=true ",
			"bad": "cmd=_return id=m1_master fun=fails fun_args=[] schedule=bad jid=req return=of fails retcode=254 success=false ",
			"nc":  "cmd=_return id=m1_master fun=f fun_args=[] schedule=nc jid=nocache return=of f retcode=3 success=true ",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got\n%v\nwant\n%v", got, want)
		}
		if runs := m.took(); len(runs) != 4 {
			t.Errorf("runs %s", runs)
		}
	})
}

// TestReturners hands the results of runs to the returners that entries name, by the id of the run.
func TestReturners(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		m.start(ctx, "m1", `{one: {function: f, hours: 1, returner: db, return_config: alt},
 bad: {function: fails, hours: 1, returner: db},
 two: {function: f, hours: 1, returner: [a, b, a], return_kwargs: {k: v}, return_job: False}}`,
			false).set(true, false)
		time.Sleep(3 * time.Second)
		m.mu.Lock()
		got := slices.Sorted(slices.Values(m.given))
		m.mu.Unlock()
		want := []string{
			"a [{id m1_master} {fun f} {fun_args []} {schedule two} {jid m1-3} {return of f} {retcode 3} {success true} {ret_kwargs [{k v}]}]",
			"b [{id m1_master} {fun f} {fun_args []} {schedule two} {jid m1-3} {return of f} {retcode 3} {success true} {ret_kwargs [{k v}]}]",
			"db [{id m1_master} {fun f} {fun_args []} {schedule one} {jid m1-1} {return of f} {retcode 3} {success true} {ret_config alt}]",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestReturnersOfAll: schedule_returner gets the results of all entries, each once.
func TestReturnersOfAll(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, m *masters) {
		m.every = []string{"all", "db"}
		m.start(ctx, "m1", `{one: {function: f, hours: 1, returner: db},
 two: {function: f, hours: 1, return_config: alt}}`, false).set(true, false)
		time.Sleep(3 * time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		var got []string
		for _, result := range m.given {
			name, rest, _ := strings.Cut(result, " ")
			_, entry, _ := strings.Cut(rest, "{schedule ")
			entry, _, _ = strings.Cut(entry, "}")
			got = append(got, entry+" "+name)
		}
		slices.Sort(got)
		want := []string{"one all", "one db", "two all", "two db"}
		if !slices.Equal(got, want) || strings.Count(fmt.Sprint(m.given), "{ret_config alt}") != 2 {
			t.Errorf("got %s, want %s, from\n%s", got, want, strings.Join(m.given, "\n"))
		}
	})
}

func TestProblems(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ option, want string }{
		{"{j: 5}", "it is 5; write a map with function and a time"},
		{"{j: {seconds: 5}}",
			"it has no function; write function: and the name of a runner function, such as state.orchestrate"},
		{"{j: {function: f}}",
			"it has no time; write seconds, minutes, hours, days, cron, when or once"},
		{"{j: {function: f, seconds: x}}", "seconds is 'x'; write a number"},
		{"{j: {function: f, seconds: 0}}", "its interval is 0; write a number from 1 on"},
		{"{j: {function: f, days: 99999}}", "days is 99999; write a number from 0 to ten years"},
		{"{j: {function: f, when: 8am, cron: '* * * * *'}}",
			`Unable to use "when", "cron" options together. Ignoring; keep one of them`},
		{"{j: {function: f, cron: '99 * * * *'}}",
			"Invalid cron string. Ignoring job j; '99 * * * *':"},
		{"{j: {function: f, when: 8:00}}",
			"Invalid date string 480 for when. Ignoring job j; write it in quotes"},
		{"{j: {function: f, when: soon}}",
			`Invalid date string soon for when. Ignoring job j: "soon": "soon" is neither a day, a month nor a part of the day; write a time such as 5:00pm, Monday 5:00pm, or 2026-12-24T18:00:00`},
		{"{j: {function: f, once: x}}",
			"Date string could not be parsed: x, %Y-%m-%dT%H:%M:%S. Ignoring job j; it is not of the form %Y-%m-%dT%H:%M:%S"},
		{"{j: {function: f, seconds: 5, splay: {start: 5, end: 1}}}",
			"splay is {'start': 5, 'end': 1}; write start and end in seconds, end no smaller than start"},
		{"{j: {function: f, seconds: 5, range: 8am}}",
			"schedule.handle_func: Invalid, range must be specified as a dictionary. Ignoring job j"},
		{"{j: {function: f, seconds: 5, range: {start: 8am}}}", "range has no end"},
		{"{j: {function: f, seconds: 5, until: never}}",
			"Invalid date string never for until. Ignoring job j"},
		{"{j: {function: f, seconds: 5, args: x}}", "args is 'x'; write a list"},
		{"{j: {function: f, seconds: 5, maxrunning: many}}",
			"maxrunning is 'many'; write a number from 1 on, it is 1 until then"},
		{"{j: {function: f, seconds: 5, cron: '* * * * *'}}",
			"cron counts for nothing beside seconds; keep one of them"},
	} {
		v, err := yaml11.Load([]byte(tt.option))
		if err != nil {
			t.Fatal(err)
		}
		option, _ := v.(value.Map)
		_, problems := Read(option)
		if len(problems) != 1 || problems[0].Name != "j" ||
			!strings.HasPrefix(problems[0].Text, tt.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", tt.option, problems, tt.want)
		}
	}
}

func FuzzTexts(f *testing.F) {
	for _, s := range []string{"Monday 5:00pm", "2026-11-22T10:11:12.5", "*/5 fri-mon L 5#3 l5",
		"20261122T101112", "%d.%m.%Y"} {
		f.Add(s)
	}
	at := time.Date(2026, 11, 21, 9, 32, 30, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 {
			return
		}
		if w, err := dateutil.Parse(text); err == nil {
			_, _ = w.On(at)
		}
		if c, err := parseCron(text); err == nil {
			if next := c.next(at); !next.IsZero() && !next.After(at) {
				t.Errorf("cron %q: %s is not after %s", text, next, at)
			}
		}
		_, _ = strptime(text, text)
	})
}
