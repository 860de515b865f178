package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/cluster/fsm"
	"clustermaster/value"
)

const (
	// interval of the leader's checks, at the beginning of each second
	lookEvery = time.Second
	maxRuns   = 200 // at the same time on this master
	// after this time an entry that is in no leader's configuration is dropped
	forgetAfter = 7 * 24 * time.Hour
	forgetEvery = time.Hour
)

// Options are the master options of the schedule.
type Options struct {
	Entries []*Entry
	ID      string // of the master, as the return event names it
	Node    string // of this master among the members
	// stand-alone: the schedule starts anew with this process, so no earlier state counts
	Alone  bool
	Window time.Duration // loop_interval: see Clock
	// cluster_clock_limit: by how much each leader's clock may be off, in either direction
	ClockLimit time.Duration
	// Returners receive the result of every entry (schedule_returner).
	Returners []string
}

// Cluster is the cluster as the schedule sees it.
type Cluster interface {
	// Leading reports whether this master leads and has applied all commands of earlier leaders.
	Leading() bool
	// Scheduled returns the state of an entry; Entries those of all.
	Scheduled(name string) (fsm.Scheduled, bool)
	Entries() []fsm.Scheduled
	// Propose applies a command once, on whichever master leads.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, error)
	// Alive reports whether a member can be reached; this one always can.
	Alive(node string) bool
}

// Outcome is the result of a run.
type Outcome struct {
	Return  any
	Retcode int
	Err     error // the run failed, or the function is unknown
}

// Deps is what the schedule uses of other packages.
type Deps struct {
	Cluster Cluster
	// Run runs a runner function without the events of salt-run, and returns when it has ended.
	Run func(ctx context.Context, jid, fun string, args []any, kwargs value.Map) Outcome
	// Fire fires an event.
	Fire func(tag string, data value.Map)
	// Return passes the result of a run to a returner; nil passes nothing.
	Return func(returner string, result value.Map)
	NewJID func() string
	Now    func() time.Time // nil: time.Now
}

// Schedule runs the entries of this master while it leads.
type Schedule struct {
	deps Deps
	opts Options
	log  *slog.Logger
	m    *metrics

	seen   map[string]bool // entries checked since the start
	told   map[string]string
	forgot time.Time
	runs   sync.WaitGroup

	mu      sync.Mutex // guards running
	running map[string]bool
}

// New makes a schedule. Log nil discards, reg nil keeps no metrics.
func New(deps Deps, o Options, log *slog.Logger, reg prometheus.Registerer) *Schedule {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &Schedule{
		deps: deps, opts: o, log: log.With("component", "schedule"), m: newMetrics(reg),
		seen: make(map[string]bool), told: make(map[string]string), running: make(map[string]bool),
	}
}

// Run checks the entries until ctx ends, and waits for the runs that it began.
func (s *Schedule) Run(ctx context.Context) error {
	defer s.runs.Wait()
	for {
		now := s.deps.Now()
		tick := time.NewTimer(now.Truncate(lookEvery).Add(lookEvery).Sub(now))
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return nil
		}
		if s.clear(ctx) && s.deps.Cluster.Leading() {
			s.look(ctx)
		}
	}
}

// clear records the end of the runs that the state has on this master and that don't run here: they
// have ended, are of an earlier process, or the answer to their claim was lost and they never
// began. It returns false if it can't. Runs begin only in the loop of Run, so none is between its
// claim and its beginning here.
func (s *Schedule) clear(ctx context.Context) bool {
	var jids []string
	entries := s.deps.Cluster.Entries()
	s.mu.Lock()
	for _, e := range entries {
		for _, r := range e.Runs {
			if r.Node == s.opts.Node && !s.running[r.JID] {
				jids = append(jids, r.JID)
			}
		}
	}
	s.mu.Unlock()
	if len(jids) == 0 {
		return true
	}
	_, err := s.deps.Cluster.Propose(ctx, &fsm.ClearRuns{JIDs: jids})
	return err == nil
}

// look makes a step of every entry.
func (s *Schedule) look(ctx context.Context) {
	for _, e := range s.opts.Entries {
		if err := s.step(ctx, e); err != nil {
			if ctx.Err() == nil {
				s.say(e.Name, "scheduled job waits: its run could not be claimed", err)
			}
			return // the others would wait as long
		}
		if !s.deps.Cluster.Leading() {
			return
		}
	}
	s.forget(ctx)
}

// say logs the error of an entry, once while it stays the same.
func (s *Schedule) say(name, what string, err error) {
	text := what
	if err != nil {
		text += err.Error()
	}
	if s.told[name] == text {
		return
	}
	if s.told[name] = text; err != nil {
		s.log.Error(what, "name", name, "err", err)
	}
}

// step makes a step of one entry, claims its run, and begins it.
func (s *Schedule) step(ctx context.Context, e *Entry) error {
	known, _ := s.deps.Cluster.Scheduled(e.Name)
	state := known
	if !s.seen[e.Name] && s.opts.Alone {
		state = fsm.Scheduled{Turn: known.Turn, Runs: known.Runs}
	}
	running := 0
	for _, r := range state.Runs {
		if s.deps.Cluster.Alive(r.Node) {
			running++
		}
	}
	now := s.deps.Now()
	next, d, err := e.Step(state, Clock{Now: now, Window: max(s.opts.Window, 2*lookEvery),
		Apart: 2*s.opts.ClockLimit + lookEvery, Random: rand.Int64N, Running: running})
	if err != nil {
		s.say(e.Name, "scheduled job does not run", err)
		return nil
	}
	s.say(e.Name, "", nil)
	if d.Run && s.count() >= maxRuns {
		s.log.Error("scheduled job not run: too many of its runs are active; check maxrunning and how long they take",
			"name", e.Name, "n", maxRuns)
		s.m.skipped.WithLabelValues("busy").Inc()
		return nil
	}
	s.seen[e.Name] = true
	if !d.Run && same(known, next) {
		return nil
	}
	next.At = now
	c := &fsm.ClaimRun{Entry: next}
	if d.Run {
		c.JID, c.Node = s.deps.NewJID(), s.opts.Node
	}
	r, err := s.deps.Cluster.Propose(ctx, c)
	switch {
	case err != nil:
		return fmt.Errorf("claim run of %s: %w", e.Name, err)
	case r.Refused == fsm.RefusedStale:
		s.m.lost.Inc() // another leader took it
		return nil
	case r.Refused != "":
		s.say(e.Name, "scheduled job does not run",
			fmt.Errorf("refused as %s: names have at most 1024 bytes, and there are at most 4096 entries", r.Refused))
		return nil
	}
	if d.Skipped != "" {
		s.m.skipped.WithLabelValues(d.Skipped).Inc()
		s.log.Debug("scheduled job skipped", "name", e.Name, "reason", d.Skipped)
	}
	if d.Run {
		s.begin(ctx, e, d.Function, c.JID)
	}
	return nil
}

// same reports whether a step left the state to store unchanged.
func same(a, b fsm.Scheduled) bool {
	utc := func(e fsm.Scheduled) fsm.Scheduled {
		for _, t := range []*time.Time{&e.Next, &e.Splay, &e.Last, &e.After} {
			*t = t.UTC()
		}
		e.At = time.Time{}
		return e
	}
	return reflect.DeepEqual(utc(a), utc(b))
}

// forget drops entries that are only in the state.
func (s *Schedule) forget(ctx context.Context) {
	now := s.deps.Now()
	if now.Sub(s.forgot) < forgetEvery {
		return
	}
	s.forgot = now
	mine := make(map[string]bool, len(s.opts.Entries))
	for _, e := range s.opts.Entries {
		mine[e.Name] = true
	}
	c := &fsm.ClearRuns{Before: now.Add(-forgetAfter)}
	for _, e := range s.deps.Cluster.Entries() {
		if !mine[e.Name] && e.At.Before(c.Before) {
			c.Forget = append(c.Forget, e.Name)
		}
	}
	if len(c.Forget) > 0 {
		if _, err := s.deps.Cluster.Propose(ctx, c); err != nil &&
			!errors.Is(err, context.Canceled) {
			s.log.Warn("old records of the schedule not removed; trying again in an hour",
				"err", err)
		}
	}
}

func (s *Schedule) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// begin runs a claimed run in the background.
func (s *Schedule) begin(ctx context.Context, e *Entry, fun, jid string) {
	s.mu.Lock()
	s.running[jid] = true
	s.mu.Unlock()
	s.log.Info("scheduled job runs", "name", e.Name, "fun", fun, "jid", jid)
	s.m.running.Inc()
	s.runs.Go(func() {
		defer func() {
			s.m.running.Dec()
			s.mu.Lock()
			delete(s.running, jid)
			s.mu.Unlock()
		}()
		if e.DryRun {
			return
		}
		s.perform(ctx, e, fun, jid)
	})
}

// perform runs an entry's function and fires the event of its return.
func (s *Schedule) perform(ctx context.Context, e *Entry, fun, jid string) {
	args := append([]any{}, e.Args...)
	if e.Kwargs != nil {
		args = append(args, e.Kwargs)
	}
	ret := value.Map{
		{Key: "cmd", Value: "_return"}, {Key: "id", Value: s.opts.ID}, {Key: "fun", Value: fun},
		{Key: "fun_args", Value: args},
		{Key: "schedule", Value: e.Name}, {Key: "jid", Value: "req"},
	}
	if e.NoCache {
		ret = ret.Set("jid", "nocache")
	}
	returners := slices.Clone(e.Returners)
	for _, name := range s.opts.Returners {
		if !slices.Contains(returners, name) {
			returners = append(returners, name)
		}
	}
	if len(returners) > 0 { // they get the job under its own id
		ret = ret.Set("jid", jid)
	}
	if e.Metadata != nil {
		ret = append(ret, value.Pair{Key: "metadata", Value: s.stamped(e.Metadata)})
	}
	out := s.deps.Run(ctx, jid, fun, e.Args, e.Kwargs)
	outcome := "done"
	if out.Err != nil {
		outcome, out.Retcode = "failed", 254
		s.log.Error("Unhandled exception running "+fun, "name", e.Name, "jid", jid, "err", out.Err)
	}
	s.m.ran.WithLabelValues(outcome).Inc()
	ret = append(
		ret,
		value.Pair{Key: "pid", Value: int64(os.Getpid())},
		value.Pair{Key: "return", Value: out.Return},
		value.Pair{Key: "retcode", Value: int64(out.Retcode)},
		value.Pair{Key: "success", Value: out.Err == nil},
	)
	if out.Err == nil && len(returners) > 0 {
		if e.ReturnConfig != nil {
			ret = append(ret, value.Pair{Key: "ret_config", Value: e.ReturnConfig})
		}
		if e.ReturnArgs != nil {
			ret = append(ret, value.Pair{Key: "ret_kwargs", Value: e.ReturnArgs})
		}
		for _, name := range returners {
			if s.deps.Return != nil {
				s.deps.Return(name, ret.Without("cmd"))
			}
		}
	}
	if e.ReturnJob {
		s.deps.Fire("__schedule_return", ret)
	}
}

// stamped adds the times that Salt adds to an entry's metadata.
func (s *Schedule) stamped(metadata value.Map) value.Map {
	now := s.deps.Now()
	utc := now.UTC()
	return append(
		append(value.Map{}, metadata...),
		value.Pair{Key: "_TOS", Value: "0000"}, // as on Salt's masters, which can't tell
		value.Pair{Key: "_TS", Value: now.Format("Mon Jan _2 15:04:05 2006")},
		value.Pair{Key: "_TT", Value: utc.Format("2006 January 02 Mon 15 01")},
	)
}
