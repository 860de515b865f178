package gather

import "context"

// poll is one round of saltutil.find_job. It runs beside the waiting for returns, which must not
// stop meanwhile.
type poll struct {
	cancel  context.CancelFunc
	done    chan struct{}
	started chan Events // gives the subscription to the answers, once
	events  Events
}

// start asks the silent minions whether they run the job.
func (p *poll) start(ctx context.Context, g *gathering) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.done = make(chan struct{})
	p.started = make(chan Events, 1)
	ask := Publish{Tgt: g.missing(), TgtType: "list", Fun: "saltutil.find_job", Arg: []any{g.jid},
		User: g.user}
	go func(started chan<- Events, done chan<- struct{}) {
		defer close(done)
		var err error
		if ask.JID, err = g.master.NewJID(ctx); err != nil {
			return
		}
		events, err := g.master.Subscribe(ctx, "salt/job/"+ask.JID+"/")
		if err != nil {
			return
		}
		if _, err := g.master.Publish(ctx, ask); err != nil {
			events.Close()
			return
		}
		started <- events
	}(p.started, p.done)
}

// answers is the channel of this round's events, nil without a round.
func (p *poll) answers() <-chan Event {
	if p.events == nil {
		return nil
	}
	return p.events.C()
}

// lost forgets a subscription that ended by itself.
func (p *poll) lost() {
	p.events.Close()
	p.events = nil
}

// end stops the round and waits for its goroutine.
func (p *poll) end() {
	if p.cancel == nil {
		return
	}
	p.cancel()
	<-p.done
	select {
	case events := <-p.started:
		events.Close()
	default:
	}
	if p.events != nil {
		p.lost()
	}
	p.cancel = nil
}
