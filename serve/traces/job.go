package traces

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Publishing is a job of this master while it is published and watched. One goroutine at a time
// uses it. All methods of nil do nothing.
type Publishing struct {
	t           *Traces
	ids         ids
	jid         string
	off         bool      // the job is not traced
	watched     bool      // guarded by Traces.mu
	began, mark time.Time // mark: the end of the last step
	minions     int
	failed      string
	job         span
	steps       []span
}

// Publish begins the trace of a job that a user orders. jid may be "" until Named. The arguments
// and the target may hold secrets and are not recorded.
func (t *Traces) Publish(ctx context.Context, jid, user string, fun any,
	tgtType string) *Publishing {
	if t == nil {
		return nil
	}
	now := time.Now()
	p := &Publishing{t: t, began: now, mark: now}
	p.job = span{name: "job " + functions(fun), began: now, kind: trace.SpanKindServer,
		attrs: []attribute.KeyValue{attribute.String("salt.function", functions(fun)),
			attribute.String("salt.user", text(user)),
			attribute.String("salt.target_type", text(tgtType))}}
	if by, ok := ctx.Value(callKey{}).(call); ok {
		p.job.link = by.span
		p.job.attrs = append(p.job.attrs, attribute.String("salt.ordered_by", by.jid))
	}
	if jid != "" {
		if p.Named(jid); p.off {
			return nil
		}
	}
	return p
}

// Named gives the job its id.
func (p *Publishing) Named(jid string) {
	if p == nil || p.jid == jid {
		return
	}
	id, wanted := p.t.job(jid)
	p.ids, p.off = id, !wanted
	p.jid, p.job.id = jid, p.ids.root
	p.job.attrs = append(p.job.attrs, attribute.String("salt.jid", text(jid)))
}

// did records a step that began when the last one ended.
func (p *Publishing) did(name, failed string, attrs ...attribute.KeyValue) {
	now := time.Now()
	p.steps = append(p.steps, span{id: newID(), name: name, began: p.mark, ended: now,
		failed: failed, attrs: attrs, kind: trace.SpanKindInternal})
	p.mark = now
}

// Resolved records that the target was resolved. Incomplete says what of the minions' data was
// missing.
func (p *Publishing) Resolved(minions, missing int, incomplete string) {
	if p == nil {
		return
	}
	p.minions = minions
	attrs := []attribute.KeyValue{attribute.Int("salt.minions", minions),
		attribute.Int("salt.missing", missing)}
	if incomplete != "" {
		attrs = append(attrs, attribute.String("salt.incomplete", text(incomplete)))
	}
	if minions == 0 {
		p.failed = "no minion matches the target"
	}
	p.did("resolve target", "", attrs...)
}

// Authorized records that the user's rights cover the job on so many minions.
func (p *Publishing) Authorized(minions int) {
	if p == nil {
		return
	}
	p.minions = minions
	p.did("authorize", "", attribute.Int("salt.minions", minions))
}

// Refused records that the user's rights don't cover the job.
func (p *Publishing) Refused() {
	if p == nil {
		return
	}
	p.failed = "not authorized"
	p.did("authorize", p.failed)
}

// Subscribed records that the masters send the job's returns here, all but the unconfirmed ones.
func (p *Publishing) Subscribed(unconfirmed []string) {
	if p == nil {
		return
	}
	p.did("subscribe to returns", "", masters("salt.unconfirmed", unconfirmed)...)
}

// Stored records that the job is stored.
func (p *Publishing) Stored() {
	if p == nil {
		return
	}
	p.did("store job", "", attribute.Int("salt.copies", p.t.opts.Copies()))
}

// waited is the least wait that gets a span.
const waited = 10 * time.Millisecond

// Settled records that the job waited for minions to leave a lost master, if it did.
func (p *Publishing) Settled() {
	if p != nil && time.Since(p.mark) > waited {
		p.did("wait after a lost master", "")
	}
}

// Sent records that the masters have the job, all but the lost ones. Again: it was sent before.
func (p *Publishing) Sent(began time.Time, lost []string, again bool) {
	if p == nil || p.off {
		return
	}
	s := span{id: p.ids.sent, parent: p.ids.root, name: "publish", kind: trace.SpanKindProducer,
		began: began, ended: time.Now(), attrs: masters("salt.lost", lost)}
	if again {
		s.id, s.name = newID(), "publish again"
	}
	p.mark = s.ended
	p.t.emit(p.ids.trace, s)
}

func masters(key string, nodes []string) []attribute.KeyValue {
	if len(nodes) == 0 {
		return nil
	}
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = text(node)
	}
	return []attribute.KeyValue{attribute.StringSlice(key, names)}
}

// open is a job that is watched here, or whose returns a command gathers here.
type open struct {
	job       *Publishing // nil until it is published here
	gatherers int
}

// Published ends the publication. Ok: the job is under way, and Watched is called sooner or later.
// Else the job ends now.
func (p *Publishing) Published(ok bool) {
	if p == nil || p.off || p.jid == "" {
		return
	}
	for _, s := range p.steps {
		s.parent = p.ids.root
		p.t.emit(p.ids.trace, s)
	}
	if !ok {
		if p.failed == "" {
			p.failed = "not published after: accept"
			if n := len(p.steps); n > 0 {
				p.failed = "not published after: " + p.steps[n-1].name
			}
		}
		p.end(p.mark, p.failed)
		return
	}
	p.t.mu.Lock()
	o := p.t.opened(p.jid)
	o.job = p
	last := p.watched && o.gatherers == 0
	if last {
		delete(p.t.open, p.jid)
	}
	p.t.mu.Unlock()
	if last {
		p.end(time.Now(), "")
	}
}

// opened returns the entry of a job; the caller holds mu.
func (t *Traces) opened(jid string) *open {
	o := t.open[jid]
	if o == nil {
		o = new(open)
		t.open[jid] = o
	}
	return o
}

// Watched ends the job, unless a command gathers its returns: then the job ends with that.
func (p *Publishing) Watched() {
	if p == nil || p.off {
		return
	}
	p.t.mu.Lock()
	p.watched = true
	o := p.t.open[p.jid]
	last := o != nil && o.job == p && o.gatherers == 0
	if last {
		delete(p.t.open, p.jid)
	}
	p.t.mu.Unlock()
	if last {
		p.end(time.Now(), "")
	}
}

// end emits the span of the whole job.
func (p *Publishing) end(at time.Time, failed string, attrs ...attribute.KeyValue) {
	s := p.job
	s.ended, s.failed = at, failed
	s.attrs = append(append(slices.Clip(s.attrs), attribute.Int("salt.minions", p.minions)),
		attrs...)
	p.t.emit(p.ids.trace, s)
}

// Gathering is a command that waits for the returns of a job. All methods of nil do nothing.
type Gathering struct {
	t      *Traces
	ids    ids
	jid    string
	prefix string // of the tags of returns
	began  time.Time

	mu       sync.Mutex // guards returned
	returned map[string]struct{}
}

// Gather notes that a command listens to the events with a prefix. It returns nil unless that are
// the events of one job. Close it.
func (t *Traces) Gather(prefix string) *Gathering {
	if t == nil {
		return nil
	}
	jid, isJob := strings.CutPrefix(prefix, "salt/job/")
	jid, whole := strings.CutSuffix(jid, "/")
	if !isJob || !whole || jid == "" || strings.Contains(jid, "/") {
		return nil
	}
	id, wanted := t.job(jid)
	if !wanted {
		return nil
	}
	t.mu.Lock()
	t.opened(jid).gatherers++
	t.mu.Unlock()
	return &Gathering{t: t, ids: id, jid: jid, prefix: prefix + "ret/", began: time.Now(),
		returned: make(map[string]struct{})}
}

// Event notes an event that the command gets.
func (g *Gathering) Event(tag string) {
	if g == nil {
		return
	}
	if id, ok := strings.CutPrefix(tag, g.prefix); ok {
		g.mu.Lock()
		g.returned[id] = struct{}{}
		g.mu.Unlock()
	}
}

// Close notes that the command has left: it has all returns, gave up, or was interrupted. The last
// one to leave ends the job.
func (g *Gathering) Close() {
	if g == nil {
		return
	}
	now := time.Now()
	g.t.mu.Lock()
	o := g.t.opened(g.jid)
	o.gatherers--
	job, last := o.job, o.gatherers == 0
	if last {
		delete(g.t.open, g.jid)
	}
	g.t.mu.Unlock()
	if job == nil {
		return // it was not published here
	}
	g.mu.Lock()
	n := len(g.returned)
	g.mu.Unlock()
	outcome := "all returned"
	if n < job.minions {
		outcome = "left without all returns"
	}
	attrs := []attribute.KeyValue{attribute.Int("salt.returned", n),
		attribute.String("salt.outcome", outcome)}
	g.t.emit(g.ids.trace, span{id: newID(), parent: g.ids.root, name: "gather returns",
		kind: trace.SpanKindInternal, began: g.began, ended: now, attrs: attrs})
	if last {
		job.end(now, "", attrs...)
	}
}

// call is the call of a runner function, in the context of what it orders.
type call struct {
	jid  string
	span trace.SpanContext
}

type callKey struct{}

// Call begins the trace of a runner or wheel function. Jobs ordered with the context link to it.
// Call done once the function has ended.
func (t *Traces) Call(ctx context.Context, jid, fun, user string) (inner context.Context,
	done func(success bool)) {
	if t == nil {
		return ctx, func(bool) {}
	}
	id, wanted := t.job(jid)
	if !wanted {
		return ctx, func(bool) {}
	}
	s := span{id: id.root, name: "run " + text(fun), kind: trace.SpanKindServer, began: time.Now(),
		attrs: []attribute.KeyValue{attribute.String("salt.jid", text(jid)),
			attribute.String("salt.function", text(fun)), attribute.String("salt.user", text(user))}}
	if by, ok := ctx.Value(callKey{}).(call); ok {
		s.link = by.span
		s.attrs = append(s.attrs, attribute.String("salt.ordered_by", by.jid))
	}
	return context.WithValue(ctx, callKey{}, call{text(jid), contextOf(id.trace, id.root)}),
		func(success bool) {
			s.ended = time.Now()
			if !success {
				s.failed = "the function failed"
			}
			t.emit(id.trace, s)
		}
}
