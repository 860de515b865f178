package traces

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"clustermaster/value"
)

// Delivery is a job that this master hands to its subscribers. All methods of nil do nothing.
type Delivery struct {
	t     *Traces
	ids   ids
	jid   string
	began time.Time
}

// Deliver begins the delivery of a job, whichever master publishes it.
func (t *Traces) Deliver(jid string) *Delivery {
	if t == nil {
		return nil
	}
	id, wanted := t.job(jid)
	if !wanted {
		return nil
	}
	return &Delivery{t: t, ids: id, jid: jid, began: time.Now()}
}

// End ends the delivery. Stale: this master has a newer AES key, and sent nothing.
func (d *Delivery) End(subscribers int, stale bool) {
	if d == nil {
		return
	}
	s := span{id: newID(), parent: d.ids.sent, name: "deliver", kind: trace.SpanKindConsumer,
		began: d.began, ended: time.Now(),
		attrs: []attribute.KeyValue{attribute.String("salt.jid", text(d.jid)),
			attribute.Int("salt.subscribers", subscribers)}}
	if stale {
		s.attrs = append(s.attrs, attribute.Bool("salt.stale_key", true))
	}
	d.t.emit(d.ids.trace, s)
}

// Return is a minion's return that this master takes. All methods of nil do nothing.
type Return struct {
	t      *Traces
	of     trace.TraceID
	whole  span
	stored span
}

// Return begins the span of a return. It returns nil for jobs that are not traced, for returns
// without a job, and beyond traces_returns.
func (t *Traces) Return(jid, minion string, load value.RawMap) *Return {
	if t == nil || jid == "req" || jid == "nocache" {
		return nil
	}
	id, wanted := t.job(jid)
	if !wanted {
		return nil
	}
	retcode, hasCode := load.Int("retcode")
	raw, hasSuccess := load.Get("success")
	v, err := raw.Unpack()
	success, isBool := v.(bool)
	hasSuccess = hasSuccess && err == nil && isBool
	failed := hasCode && retcode != 0 || hasSuccess && !success
	if !t.returns.take(jid, failed, t.opts.Returns) {
		t.metrics.leftOut.Inc()
		return nil
	}
	val, _ := load.Get("return")
	r := &Return{t: t, of: id.trace, whole: span{id: newID(), parent: id.root, name: "return",
		kind: trace.SpanKindServer, began: time.Now(), attrs: []attribute.KeyValue{
			attribute.String("salt.jid", text(jid)), attribute.String("salt.minion", text(minion)),
			attribute.Int("salt.bytes", len(val))}}}
	if hasCode {
		r.whole.attrs = append(r.whole.attrs, attribute.Int64("salt.retcode", retcode))
	}
	if hasSuccess {
		r.whole.attrs = append(r.whole.attrs, attribute.Bool("salt.success", success))
	}
	if failed {
		r.whole.failed = "the minion reports a failure"
	}
	return r
}

// Stored records that the return is stored, with the result: saved, repeated or nocache.
func (r *Return) Stored(result string, err error) {
	if r == nil {
		return
	}
	r.stored = span{id: newID(), parent: r.whole.id, name: "store return",
		kind: trace.SpanKindInternal, began: r.whole.began, ended: time.Now()}
	if err != nil {
		r.stored.failed = "not stored"
		r.whole.failed = r.stored.failed
		return
	}
	r.stored.attrs = []attribute.KeyValue{attribute.String("salt.result", result)}
	if result == "saved" {
		r.stored.attrs = append(r.stored.attrs, attribute.Int("salt.copies", r.t.opts.Copies()))
	}
}

// End ends the span.
func (r *Return) End() {
	if r == nil {
		return
	}
	if r.stored.name != "" {
		r.t.emit(r.of, r.stored)
	}
	r.whole.ended = time.Now()
	r.t.emit(r.of, r.whole)
}

// countedJobs bounds the jobs whose returns are counted. The count of a forgotten one begins anew.
const countedJobs = 4096

// counts are the spans of the latest jobs' returns.
type counts struct {
	mu   sync.Mutex // guards the rest
	jobs map[string]*[2]int
	ring []string
	next int
}

func newCounts() counts {
	return counts{jobs: make(map[string]*[2]int), ring: make([]string, countedJobs)}
}

// take reports whether one more return of a job may have a span, and counts it.
func (c *counts) take(jid string, failed bool, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.jobs[jid]
	if n == nil {
		n = new([2]int)
		delete(c.jobs, c.ring[c.next])
		c.ring[c.next] = jid
		c.next = (c.next + 1) % countedJobs
		c.jobs[jid] = n
	}
	which := 0
	if failed {
		which = 1
	}
	if n[which] >= most {
		return false
	}
	n[which]++
	return true
}
