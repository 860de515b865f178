package orchestrate

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/salt/modules"
	"clustermaster/value"
)

// returns are the returns of states in the order of their first return.
type returns struct {
	tags []string
	by   map[string]value.Map
}

func newReturns() *returns { return &returns{by: make(map[string]value.Map)} }

func (r *returns) set(tag string, ret value.Map) {
	if _, ok := r.by[tag]; !ok {
		r.tags = append(r.tags, tag)
	}
	r.by[tag] = ret
}

func (r *returns) update(other *returns) {
	for _, tag := range other.tags {
		r.set(tag, other.by[tag])
	}
}

func (r *returns) wire() value.Map {
	out := make(value.Map, len(r.tags))
	for i, tag := range r.tags {
		out[i] = value.Pair{Key: tag, Value: r.by[tag]}
	}
	return out
}

// run runs low chunks: Salt's call_chunks and the functions that it calls.
type run struct {
	o         *Orchestrator
	req       Request
	test      bool
	graph     *graph
	count     int // number of chunks, for events
	functions Bound
	lowstate  []*chunk // all chunks of the list that runs
	who       modules.Minion

	number   int64                // __run_num__ of the next return
	ret      *returns             // what ran
	tried    map[string]value.Map // returns of trial runs for a prereq
	parallel []*parallel          // not yet ended, in the order of their start
	ended    chan struct{}        // holds a signal after one of them has ended
	settled  int                  // how many of them have been collected
	waits    map[*chunk]bool      // chunks that wait for one of them, as of this look at all
	halted   bool                 // a state with failhard failed
}

// everything runs the chunks, then listeners and beacons.
func (x *run) everything(ctx context.Context, chunks []*chunk) (*returns, error) {
	ret, err := x.chunks(ctx, chunks, len(chunks))
	if err == nil {
		err = x.listeners(ctx, chunks, ret)
	}
	if err == nil {
		err = x.beacons(ctx, chunks, ret)
	}
	return ret, err
}

// chunks runs a list of chunks; count is their number for events. Parallel ones have ended when it
// returns.
func (x *run) chunks(ctx context.Context, chunks []*chunk, count int) (*returns, error) {
	x.ret, x.count, x.halted, x.lowstate = newReturns(), count, false, chunks
	x.waits = make(map[*chunk]bool)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, p := range x.parallel {
			p.wait()
		}
		x.parallel = nil
	}()
	var pending []*chunk
	for _, ch := range chunks {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		var err error
		var stop bool
		if pending, stop, err = x.pending(ctx, pending); err != nil {
			return nil, err
		} else if stop || x.halted {
			return x.ret, nil
		}
		x.settleParallel(nil)
		if _, ran := x.ret.by[ch.tag()]; ran {
			continue
		}
		kill, err := x.pause(ctx, ch)
		if err != nil {
			return nil, err
		}
		if kill {
			break
		}
		waits, err := x.chunk(ctx, ch, 0)
		if err != nil {
			return nil, err
		}
		if waits {
			pending = append(pending, ch)
		}
		if x.failhard(ch) {
			return x.ret, nil
		}
	}
	for len(pending) > 0 {
		settled := x.settled
		var err error
		var stop bool
		if pending, stop, err = x.pending(ctx, pending); err != nil {
			return nil, err
		} else if stop {
			return x.ret, nil
		}
		if x.settleParallel(nil); len(pending) > 0 && x.settled == settled {
			if err := x.wait(ctx); err != nil {
				return nil, err
			}
		}
	}
	for !x.settleParallel(nil) {
		if err := x.wait(ctx); err != nil {
			return nil, err
		}
	}
	return x.ret, nil
}

// pending tries again the chunks that wait for parallel states.
func (x *run) pending(ctx context.Context, pending []*chunk) (still []*chunk, stop bool,
	err error) {
	clear(x.waits)
	for i, ch := range pending {
		if _, ran := x.ret.by[ch.tag()]; ran {
			continue
		}
		waits, err := x.chunk(ctx, ch, 0)
		if err != nil {
			return nil, false, err
		}
		if waits {
			still = append(still, ch)
		}
		if x.failhard(ch) {
			return append(still, pending[i+1:]...), true, nil
		}
	}
	return still, false, nil
}

// failhard reports whether a chunk failed in a way that ends the run.
func (x *run) failhard(ch *chunk) bool {
	ret, ran := x.ret.by[ch.tag()]
	if x.test || !ran {
		return false
	}
	hard, ok := ch.get("failhard")
	if !ok {
		hard = x.o.opts.Failhard
	}
	result, _ := ret.Get("result")
	return value.Truth(hard) && result != nil && !value.Truth(result)
}

// verdict is the result of checking a chunk's requisites.
type verdict int

const (
	met verdict = iota
	unmet
	waiting
	failed
	skipped      // a required state says to skip what depends on its changes
	skippedWatch // the same, where only mod_watch depends on it
	unchanged    // nothing would change in the state that it is a prereq of
	noFailure
	noChanges
	changed
)

// marks are the findings in one list of requisites.
type marks struct {
	unmet, fail, skip, onfail, onchanges, onchangesMet, change, pre, preMet,
	met bool
}

// requisites checks the requisites of a chunk: Salt's _check_requisites.
func (x *run) requisites(ctx context.Context, ch *chunk) (verdict, map[kind][]*chunk, error) {
	reqs := map[kind][]*chunk{}
	var order []kind
	x.graph.dependencies(ch, func(k kind, on *chunk) {
		if reqs[k] == nil {
			order = append(order, k)
		}
		reqs[k] = append(reqs[k], on)
	})
	var all marks
	waits := false
	for _, k := range order {
		among := map[string]bool{}
		for _, on := range reqs[k] {
			among[on.tag()] = true
		}
		ended := x.settleParallel(among)
		for !ended && !value.Truth(orElse(ch.low, "parallel", false)) {
			if err := x.wait(ctx); err != nil {
				return 0, nil, err
			}
			ended = x.settleParallel(among)
		}
		waits = waits || !ended
		all = all.join(x.marks(k, reqs[k], !ended))
	}
	return all.verdict(waits), reqs, nil
}

func (x *run) marks(k kind, chunks []*chunk, waits bool) marks {
	var m marks
	ran := x.ret.by
	if k.base() == prereq {
		ran = x.tried
	}
	for _, on := range chunks {
		ret, ok := ran[on.tag()]
		if !ok {
			m.unmet = true
			continue
		}
		if waits {
			continue
		}
		result, _ := ret.Get("result")
		changes, _ := ret.Get("changes")
		skip, _ := ret.Get("skip_req")
		m.skip = m.skip || value.Truth(skip)
		switch {
		case k.base() == onfail && result == true:
			m.onfail = true
		case k.base() == onchanges && (result == false || !value.Truth(changes)):
			m.onchanges = true
		case k.base() == onchanges:
			m.onchangesMet = true
		case k.base() != onfail && result == false:
			m.fail = true
		case k.base() == watch && value.Truth(changes):
			m.change = true
		case k == prereq && result == nil:
			m.preMet = true
		case k == prereq:
			m.pre = true
		default:
			state, has := ret.Get("__state_ran__")
			m.met = m.met || !has || value.Truth(state)
		}
	}
	if k == requireAny || k == watchAny || k == onchangesAny || k == onfailAny || k == onfail {
		if m.met || m.change {
			m.fail = false
		}
		if m.onchangesMet {
			m.onchanges, m.fail = false, false
		}
		if m.met {
			m.onfail = false
		}
	}
	if k == onfailAll && m.onfail {
		m.met = false
	}
	return m
}

func (m marks) join(o marks) marks {
	return marks{
		m.unmet || o.unmet, m.fail || o.fail, m.skip || o.skip, m.onfail || o.onfail, m.onchanges ||
			o.onchanges, m.onchangesMet || o.onchangesMet,
		m.change || o.change, m.pre || o.pre, m.preMet || o.preMet, m.met || o.met,
	}
}

func (m marks) verdict(waits bool) verdict {
	switch {
	case m.unmet:
		return unmet
	case waits:
		return waiting
	case m.fail:
		return failed
	case m.skip && (m.onchangesMet || m.preMet):
		return skipped
	case m.skip && m.change:
		return skippedWatch
	case m.pre && m.preMet:
		return met
	case m.pre:
		return unchanged
	case m.onfail && !m.onchangesMet:
		return noFailure
	case m.onchanges && !m.onchangesMet:
		return noChanges
	case m.change:
		return changed
	case m.onfail:
		return noFailure
	}
	return met
}

// chunk runs one chunk if its requisites allow it: Salt's call_chunk. It reports whether the chunk
// waits for a parallel state.
func (x *run) chunk(ctx context.Context, ch *chunk, depth int) (waits bool, err error) {
	tag := ch.tag()
	status, reqs, err := x.requisites(ctx, ch)
	if err != nil {
		return false, err
	}
	switch status {
	case unmet:
		stop, waits, err := x.first(ctx, ch, depth)
		x.waits[ch] = waits
		if stop || waits || err != nil {
			return waits, err
		}
	case waiting:
		x.waits[ch] = true
		return true, nil
	case skipped:
		x.notRun(ch, true, "State was not run because requisites were skipped by another state")
	case failed:
		x.requisiteFailed(ch, reqs)
	case unchanged:
		x.notRun(ch, true, "No changes detected")
	case noFailure:
		x.notRun(ch, true, "State was not run because onfail req did not change")
	case noChanges:
		x.notRun(ch, true, "State was not run because none of the onchanges reqs changed")
	default:
		err = x.allowed(ctx, ch, status, reqs)
	}
	if err != nil {
		return false, err
	}
	if ret, ran := x.ret.by[tag]; ran {
		x.event(ch, ret)
		x.subStates(ch, tag, ret)
	}
	return false, nil
}

// allowed runs a chunk whose requisites are met, as a trial run if another state has a prereq on
// it.
func (x *run) allowed(ctx context.Context, ch *chunk, status verdict,
	reqs map[kind][]*chunk) error {
	try := ch.try
	ret, err := x.call(ctx, ch)
	switch {
	case err != nil:
		return err
	case try:
		x.tried[ch.tag()] = ret
		return nil
	case status == skippedWatch:
		said, _ := ret.Get("comment")
		ret = ret.Set("comment", value.Str(said)+
			" mod_watch was not run because requisites were skipped by another state")
	case status == changed:
		changes, _ := ret.Get("changes")
		skip, _ := ret.Get("skip_watch")
		if value.Truth(changes) || value.Truth(skip) {
			break
		}
		again := ch.as("mod_watch")
		for _, on := range reqs[watch] {
			had, _ := x.ret.by[on.tag()].Get("changes")
			again.watched = append(again.watched,
				Watched{State: on.module, ID: on.id, Changed: value.Truth(had)})
		}
		for _, k := range slices.Sorted(maps.Keys(reqs)) {
			chunks := reqs[k]
			lows := make([]any, len(chunks))
			for i, on := range chunks {
				lows[i] = on.low
			}
			again.reqs = again.reqs.Set(k.String(), lows)
		}
		if ret, err = x.call(ctx, again); err != nil {
			return err
		}
	}
	x.ret.set(ch.tag(), ret)
	return nil
}

// first runs the dependencies of a chunk that have not run yet, then the chunk. stop reports that
// nothing more may run.
func (x *run) first(ctx context.Context, ch *chunk, depth int) (stop, waits bool, err error) {
	var on []*chunk
	x.graph.dependencies(ch, func(_ kind, c *chunk) { on = append(on, c) })
	for _, c := range on {
		if _, ran := x.ret.by[c.tag()]; ran {
			continue
		}
		if x.waits[c] {
			return false, true, nil
		}
		if waits, err = x.chunk(ctx, c, 0); waits || err != nil {
			return false, waits, err
		}
		if x.failhard(c) {
			x.halted = true
			return true, false, nil
		}
	}
	switch {
	case ch.try:
		status, _, err := x.requisites(ctx, ch)
		if err != nil {
			return false, false, err
		}
		if status == unchanged {
			x.tried[ch.tag()] = x.notRunReturn(ch, true, "No changes detected")
			break
		}
		ret, err := x.call(ctx, ch)
		if err != nil {
			return false, false, err
		}
		if changes, _ := ret.Get("changes"); !value.Truth(changes) && status == changed {
			ret = ret.Set("changes", value.Map{{Key: "watch", Value: "watch"}}).Set("result", nil)
		}
		x.tried[ch.tag()] = ret
	case depth >= maxUnmet:
		x.ret.set(ch.tag(), value.Map{
			{Key: "changes", Value: value.Map{}}, {Key: "result", Value: false},
			{Key: "comment", Value: "Recursive requisite found"},
			{Key: "__run_num__", Value: x.number}, {Key: "__sls__", Value: ch.sls},
			{Key: "__id__", Value: ch.id}, {Key: "name", Value: ch.name},
		})
	default:
		if waits, err = x.chunk(ctx, ch, depth+1); err != nil {
			return false, false, err
		}
	}
	if x.failhard(ch) {
		x.halted = true
		return true, waits, nil
	}
	return false, waits, nil
}

// maxUnmet bounds how often one chunk's requisites are run.
const maxUnmet = 20

// requisiteFailed records a chunk that can't run because of others.
func (x *run) requisiteFailed(ch *chunk, reqs map[kind][]*chunk) {
	// It had a trial run for a prereq of a state that then failed: its proposed changes were not
	// made.
	if ret, ok := x.tried[ch.tag()]; ok {
		if changes, _ := ret.Get("changes"); value.Truth(changes) {
			ret = ret.Set("changes", value.Map{})
		}
		ret = ret.Set("__run_num__", x.number).Set("__sls__", ch.sls).Set("__id__",
			ch.id).Set("name", ch.name)
		x.number++
		x.ret.set(ch.tag(), ret)
		return
	}
	var names []string
	for _, k := range slices.Sorted(maps.Keys(reqs)) {
		for _, on := range reqs[k] {
			ret, ok := x.tried[on.tag()]
			if !ok {
				if ret, ok = x.ret.by[on.tag()]; !ok {
					continue
				}
			}
			result, _ := ret.Get("result")
			if name := show(on.sls) + "." + on.id; result == false &&
				!slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	x.notRun(ch, false, "One or more requisite failed: "+strings.Join(names, ", "))
}

// notRun records a chunk that did not run.
func (x *run) notRun(ch *chunk, result bool, comment string) {
	ret := x.notRunReturn(ch, result, comment)
	x.ret.set(ch.tag(), ret)
	if ch.try {
		x.tried[ch.tag()] = ret
	}
}

func (x *run) notRunReturn(ch *chunk, result bool, comment string) value.Map {
	ret := value.Map{
		{Key: "changes", Value: value.Map{}}, {Key: "result", Value: result},
		{Key: "duration", Value: 0.0}, {Key: "start_time", Value: clock(x.o.deps.Now())},
		{Key: "comment", Value: comment}, {Key: "__state_ran__", Value: false},
		{Key: "__run_num__", Value: x.number},
		{Key: "__sls__", Value: ch.sls}, {Key: "__id__", Value: ch.id},
		{Key: "name", Value: ch.name},
	}
	x.number++
	return ret
}

// subStates records the returns that a function adds to its own.
func (x *run) subStates(ch *chunk, tag string, ret value.Map) {
	v, ok := ret.Get("sub_state_run")
	if !ok {
		return
	}
	x.ret.set(tag, ret.Without("sub_state_run"))
	subs, _ := v.([]any)
	for _, s := range subs {
		sub, _ := s.(value.Map)
		v, _ := sub.Get("low")
		low, ok := v.(value.Map)
		if !ok {
			continue
		}
		x.number++
		x.ret.set(newChunk(low).tag(), value.Map{
			{Key: "name", Value: ch.name},
			{Key: "changes", Value: orElse(sub, "changes", value.Map{})},
			{Key: "result", Value: orElse(sub, "result", nil)},
			{Key: "duration", Value: orElse(sub, "duration", 0.0)},
			{Key: "start_time", Value: orElse(sub, "start_time", clock(x.o.deps.Now()))},
			{Key: "comment", Value: orElse(sub, "comment", "")},
			{Key: "__state_ran__", Value: true}, {Key: "__run_num__", Value: x.number},
			{Key: "__sls__", Value: ch.sls}, {Key: "__id__", Value: ch.id},
		})
	}
}

// event fires the event of a return, with state_events or fire_event.
func (x *run) event(ch *chunk, ret value.Map) {
	fire, _ := ch.get("fire_event")
	if x.o.opts.Local || !x.o.opts.Events && !value.Truth(fire) || x.o.deps.Fire == nil {
		return
	}
	data := value.Map{{Key: "ret", Value: slices.Clone(ret)}}
	name, isText := fire.(string)
	switch {
	case fire == true:
		v, _ := ret.Get("name")
		name = value.Str(v)
	case !isText:
		number, _ := ret.Get("__run_num__")
		n, _ := number.(int64)
		x.o.deps.Fire("salt/job/"+x.req.JID+"/prog/"+x.who.ID+"/"+strconv.FormatInt(n, 10),
			data.Set("len", int64(x.count)))
		return
	}
	x.o.deps.Fire("salt/state_result/"+x.req.JID+"/"+x.who.ID+"/"+name, data)
}

// clock formats a time as Salt's returns do: local, without date and zone.
func clock(t time.Time) string {
	t = t.Local()
	if t.Nanosecond()/1000 == 0 {
		return t.Format("15:04:05")
	}
	return t.Format("15:04:05.000000")
}

// milliseconds converts a duration to the form in Salt's returns.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
