package gather

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/value"
)

// Publish is a job to send.
type Publish struct {
	Tgt     any // text or []string
	TgtType string
	Fun     any   // text, or []string for several functions
	Arg     []any // as in Salt: keyword arguments are a last map with __kwarg__
	Ret     string
	JID     string // empty: Run makes one
	User    string
	Kwargs  value.Map
	Timeout time.Duration // "to" of the published load; 0 leaves it out
	// Patience is how long a master that just started may wait until it serves; 0, or more than the
	// master's own bound, means that bound.
	Patience time.Duration
}

// Published is a master's answer to a Publish.
type Published struct {
	JID     string
	Minions []string // expected to return
	// Missing were targeted by name, and have no accepted key. A Summary leaves out those of them
	// that are below a syndic.
	Missing []string
	Error   string // Salt's text for a job that was not sent
	// Incomplete is not empty if minions may have been missed; it says how much of their data could
	// not be read.
	Incomplete string
}

// Return is what one minion answered.
type Return struct {
	Return  value.Raw
	Retcode value.Raw // empty if the minion sent none
	Success value.Raw // empty if the minion sent none
	Out     string
}

// Code is the return code: 0 if the minion sent none, and the highest if the job had several
// functions. A code that can't be read counts as a failure.
func (r Return) Code() int {
	if len(r.Retcode) == 0 {
		return 0
	}
	v, err := r.Retcode.Unpack()
	if err != nil {
		return 1
	}
	if m, ok := v.(value.Map); ok {
		highest := 0
		for _, p := range m {
			highest = max(highest, code(p.Value))
		}
		return highest
	}
	return code(v)
}

func code(v any) int {
	switch x := v.(type) {
	case int64:
		return int(x)
	case bool:
		if x {
			return 1
		}
	}
	return 0
}

// Event is an event of the cluster's bus.
type Event struct {
	Tag  string
	Data value.Raw
	// Lost is set in a notice without tag and data: some events before it were lost, because a
	// subscriber read too slowly.
	Lost bool
}

// Events is a subscription.
type Events interface {
	// C gives the events; it is closed when the connection to the master is lost.
	C() <-chan Event
	Close()
}

// Master is the master as gathering uses it.
type Master interface {
	// NewJID makes the id of a job before it is published, so that the caller can subscribe to its
	// returns first.
	NewJID(ctx context.Context) (string, error)
	Publish(ctx context.Context, p Publish) (Published, error)
	// Subscribe returns once every reachable master sends the events of the prefix.
	Subscribe(ctx context.Context, prefix string) (Events, error)
	// ReadReturns calls fn with the job cache's returns of a job from some minions, one after the
	// other, and reads no others. It stops at an error of fn and returns it.
	ReadReturns(ctx context.Context, jid string, ids []string,
		fn func(id string, r Return) error) error
}

// Options are Salt's waiting times.
type Options struct {
	Timeout          time.Duration // timeout; 0 means 5 s
	GatherJobTimeout time.Duration // gather_job_timeout; 0 means 10 s
	// SyndicWait is how long minions behind syndics may still report, also if the target matches no
	// other minion; 0: there are no syndics.
	SyndicWait time.Duration
	// Hold counts each return, still packed, before it is passed on; its error ends the gathering.
	// Callers that keep all returns bound them so. nil: there may be any number.
	Hold func(packed []byte) error
}

// hold counts a return of a job.
func (o Options) hold(jid string, r Return) error {
	if o.Hold == nil {
		return nil
	}
	if err := o.Hold(r.Return); err != nil {
		return fmt.Errorf("the minions returned for job %s %w", jid, err)
	}
	return nil
}

// Summary is how a job ended.
type Summary struct {
	Published
	Returned    []string // sorted
	NotReturned []string // sorted
}

// Silent lists the minions that did not return. Ids of a list without an accepted key count too,
// but Run does not wait for them.
func (s Summary) Silent() []string { return slices.Concat(s.NotReturned, s.Missing) }

// NoReturn is Salt's text in place of a silent minion's return.
func NoReturn(jid string) string {
	return "Minion did not return. [No response]\n" + LateReturns(jid)
}

// LateReturns is Salt's text about returns that arrive after a command has ended.
func LateReturns(jid string) string {
	return "The minions may not have all finished running and any remaining minions will return upon completion. To look up the return data for this job later, run the following command:\n\n" +
		"salt-run jobs.lookup_jid " + jid
}

// ErrMasterLost is returned when the event stream ends before the job does.
var ErrMasterLost = errors.New("the master went away while waiting for returns; see salt-run jobs.lookup_jid")

// Run publishes p and calls onReturn for each minion's return as it arrives, once per minion, from
// its own goroutine. It returns when all expected minions have returned, or when it has found the
// others to be silent. The error is a failure to subscribe or publish, ErrMasterLost, that of
// Options.Hold, or ctx's; the Summary then has what was gathered until then.
func Run(ctx context.Context, m Master, p Publish, o Options,
	onReturn func(id string, r Return)) (Summary, error) {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.GatherJobTimeout <= 0 {
		o.GatherJobTimeout = 10 * time.Second
	}
	if o.SyndicWait > 0 && p.Timeout == 0 {
		p.Timeout = o.Timeout
	}
	if p.JID == "" {
		var err error
		if p.JID, err = m.NewJID(ctx); err != nil {
			return Summary{}, fmt.Errorf("make job id: %w", err)
		}
	}
	// Subscribe before publishing, so that the returns of fast minions are not missed.
	events, err := m.Subscribe(ctx, "salt/job/"+p.JID+"/")
	if err != nil {
		return Summary{}, fmt.Errorf("subscribe to job %s: %w", p.JID, err)
	}
	defer events.Close()
	published, err := m.Publish(ctx, p)
	if err != nil {
		// It may have been published all the same: the caller can still ask for its returns.
		return Summary{Published: Published{JID: p.JID}}, fmt.Errorf("publish job %s: %w", p.JID, err)
	}
	if published.Error != "" || len(published.Minions) == 0 && o.SyndicWait <= 0 {
		return Summary{Published: published}, nil
	}
	g := &gathering{
		master: m, opts: o, jid: published.JID, user: p.User, onReturn: onReturn,
		expected: make(map[string]time.Time), returned: make(map[string]bool),
	}
	now := time.Now()
	g.notBefore = now.Add(o.SyndicWait)
	for _, id := range published.Minions {
		g.expected[id] = now.Add(o.Timeout)
	}
	err = cmp.Or(g.wait(ctx, events), g.refused)
	s := Summary{Published: published, NotReturned: g.missing()}
	for id := range g.returned {
		s.Returned = append(s.Returned, id)
	}
	slices.Sort(s.Returned)
	s.Missing = slices.DeleteFunc(slices.Clone(s.Missing), func(id string) bool {
		_, named := g.expected[id] // by a syndic
		return named || g.returned[id]
	})
	return s, err
}

// gathering is the state of one Run.
type gathering struct {
	master   Master
	opts     Options
	jid      string
	user     string
	onReturn func(string, Return)
	refused  error                // says that the returns are too large
	expected map[string]time.Time // id to the moment from which its silence counts
	returned map[string]bool
	reads    reads

	notBefore time.Time // syndics may name more minions until then
}

// missing lists the expected ids that have not returned, sorted.
func (g *gathering) missing() []string {
	var out []string
	for id := range g.expected {
		if !g.returned[id] {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func (g *gathering) complete() bool {
	if g.opts.SyndicWait > 0 && time.Now().Before(g.notBefore) {
		return false
	}
	for id := range g.expected {
		if !g.returned[id] {
			return false
		}
	}
	return true
}

func (g *gathering) wait(ctx context.Context, events Events) error {
	var asked poll
	defer asked.end()
	defer g.reads.end()
	running := true // a minion may be running it; Salt asks at least once
	timer := time.NewTimer(g.opts.Timeout)
	defer timer.Stop()
	var syndics <-chan time.Time
	if g.opts.SyndicWait > 0 {
		syndics = time.After(g.opts.SyndicWait)
	}
	for g.refused == nil && !g.complete() {
		g.reads.start(ctx, g)
		select {
		case e, ok := <-events.C():
			if !ok {
				return ErrMasterLost
			}
			g.event(e)
		case answers := <-asked.started:
			asked.events = answers
		case e, ok := <-asked.answers():
			if !ok {
				asked.lost()
				continue
			}
			if g.findJob(e) {
				running = true
			}
		case r := <-g.reads.found:
			g.reads.brought++
			g.give(r.id, r.Return)
		case <-g.reads.soon():
			g.reads.wantMissing()
		case <-syndics: // the minions that syndics named are expected by now
		case <-timer.C:
			if len(g.missing()) == 0 {
				timer.Reset(g.opts.Timeout)
				continue
			}
			// A minion counts as silent only after the job cache was asked for its return. The
			// timer rests until then.
			g.reads.silence = true
			g.reads.wantMissing()
		case err := <-g.reads.ended:
			if !g.reads.finish(g, err) {
				continue
			}
			if g.complete() {
				return nil
			}
			if running {
				running = false
				asked.end()
				asked.start(ctx, g)
				timer.Reset(g.opts.GatherJobTimeout + g.opts.SyndicWait)
				continue
			}
			left := time.Until(g.lastDeadline())
			if left <= 0 {
				return nil
			}
			timer.Reset(left)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lastDeadline is the latest deadline among those that have not returned.
func (g *gathering) lastDeadline() time.Time {
	var last time.Time
	for _, id := range g.missing() {
		if t := g.expected[id]; t.After(last) {
			last = t
		}
	}
	return last
}

// event handles a return, a notice that events were lost, or a list of minions from a syndic, which
// adds to the expected ones.
func (g *gathering) event(e Event) {
	if e.Lost {
		g.reads.lost()
		return
	}
	data, err := value.UnpackRawMap(e.Data)
	if err != nil {
		return
	}
	if _, id, ok := strings.Cut(e.Tag, "/ret/"); ok {
		g.take(id, data)
		return
	}
	raw, _ := data.Get("minions")
	list, _ := raw.Unpack()
	ids, _ := list.([]any)
	for _, v := range ids {
		if id, ok := v.(string); ok {
			if _, known := g.expected[id]; !known {
				g.expected[id] = time.Now().Add(g.opts.Timeout)
			}
		}
	}
}

// trimmed is what the bus puts in place of a value above max_event_size.
const trimmed = "VALUE_TRIMMED"

// take passes on the return of an event. If the event was trimmed it reads the return from the job
// cache, which has all of it: a return is stored before its event fires.
func (g *gathering) take(id string, data value.RawMap) {
	if id == "" || g.returned[id] {
		return
	}
	val, ok := data.Get("return")
	// An event that was trimmed down to its stamp has no field id.
	if _, whole := data.Get("id"); !whole {
		if _, expected := g.expected[id]; expected {
			g.reads.want(id, nil)
		}
		return
	}
	if !ok {
		return
	}
	retcode, _ := data.Get("retcode")
	success, _ := data.Get("success")
	r := Return{Return: val, Retcode: retcode, Success: success, Out: data.String("out")}
	if bytes.Contains(val, []byte(trimmed)) {
		g.reads.want(id, &r)
		return
	}
	g.give(id, r)
}

func (g *gathering) give(id string, r Return) {
	g.reads.got(id)
	if g.returned[id] || g.refused != nil {
		return
	}
	g.returned[id] = true
	if g.refused = g.opts.hold(g.jid, r); g.refused == nil {
		g.onReturn(id, r)
	}
}

// findJob handles an answer to saltutil.find_job and reports whether that minion still runs the
// job.
func (g *gathering) findJob(e Event) bool {
	if !strings.Contains(e.Tag, "/ret/") {
		return false
	}
	data, err := value.UnpackRawMap(e.Data)
	if err != nil {
		return false
	}
	id := data.String("id")
	if _, ok := g.expected[id]; !ok || g.returned[id] {
		return false
	}
	if code, ok := data.Int("retcode"); ok && code > 0 {
		delete(g.expected, id)
		return false
	}
	raw, _ := data.Get("return")
	running, err := raw.Map()
	if err != nil || len(running) == 0 {
		return false
	}
	g.expected[id] = time.Now().Add(g.opts.Timeout)
	return true
}
