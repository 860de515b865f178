package orchestrate

import (
	"context"

	"clustermaster/value"
)

// maxParallel bounds how many states of one orchestration run at once.
const maxParallel = 256

// parallel is a state that runs beside others.
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

// startParallel begins a state beside others, or lets it wait for its turn. The return is what
// stands for it until it has ended.
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
			default: // a word is enough for several
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

// mayStart reports that another parallel state may begin: state_max_parallel.
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

// settleParallel takes in the returns of parallel states that ended and starts those whose turn it
// is; among limits it to some tags. It reports that none of those is still under way.
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
		default:
			settled = false
			kept = append(kept, p)
		}
	}
	x.parallel = kept
	return settled
}

// wait returns after a parallel state has ended, or when ctx does. What has ended before must have
// been settled.
func (x *run) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-x.ended:
		return nil
	}
}
