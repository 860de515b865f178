package orchestrate

import (
	"context"

	"clustermaster/value"
)

// maxParallel bounds the states of one orchestration that run at once.
const maxParallel = 256

// parallel is a state that runs in parallel with others.
type parallel struct {
	tag   string
	begin func() // starts it
	done  chan struct{}
	ret   value.Map // once done
	began bool
}

func (p *parallel) wait() {
	if p.began {
		<-p.done
	}
}

// startParallel begins a parallel state, or queues it. It returns a placeholder for the return
// until the state has ended.
func (x *run) startParallel(ctx context.Context, ch *chunk,
	work func(context.Context) value.Map) value.Map {
	p := &parallel{tag: ch.tag(), done: make(chan struct{})}
	p.begin = func() {
		p.began = true
		go func() {
			p.ret = work(ctx)
			close(p.done)
			select {
			case x.ended <- struct{}{}:
			default: // one signal is enough for several
			}
		}()
	}
	x.parallel = append(x.parallel, p)
	comment := "Waiting to be started in a separate process, max_parallel hit"
	if x.mayStart() {
		p.begin()
		comment = "Started in a separate process"
	}
	return value.Map{{Key: "name", Value: ch.name}, {Key: "result", Value: nil},
		{Key: "changes", Value: value.Map{}}, {Key: "comment", Value: comment}}
}

// mayStart reports whether state_max_parallel allows another parallel state.
func (x *run) mayStart() bool {
	limit := maxParallel
	if n := x.o.opts.MaxParallel; n > 0 {
		limit = min(n, limit)
	}
	for _, p := range x.parallel {
		if p.began && !p.ended() {
			limit--
		}
	}
	return limit > 0
}

func (p *parallel) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// settleParallel collects the returns of parallel states that have ended and starts queued ones in
// order; among limits it to some tags. It reports whether none of those is still running.
func (x *run) settleParallel(among map[string]bool) bool {
	settled := true
	kept := x.parallel[:0:0]
	for _, p := range x.parallel {
		ret, ran := x.ret.by[p.tag]
		if !ran || among != nil && !among[p.tag] {
			kept = append(kept, p)
			continue
		}
		switch {
		case !p.began:
			if x.mayStart() {
				p.begin()
				x.ret.set(p.tag, ret.Set("comment", "Started in a separate process"))
			}
			settled = false
			kept = append(kept, p)
		case p.ended():
			for _, e := range p.ret {
				ret = ret.Set(value.Str(e.Key), e.Value)
			}
			x.ret.set(p.tag, ret)
			x.settled++
		default:
			settled = false
			kept = append(kept, p)
		}
	}
	x.parallel = kept
	return settled
}

// wait returns after a parallel state has ended, or when ctx does. The caller must have settled the
// states that ended before.
func (x *run) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-x.ended:
		return nil
	}
}
