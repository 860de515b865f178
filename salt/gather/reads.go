package gather

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// lossDelay is the time from a notice of loss to the read of the missing returns: a burst loses
	// many, and the events queued behind the notice may bring some of them.
	lossDelay = 250 * time.Millisecond
	// readSilence is how long a read of the job cache may bring nothing before it is ended. Each
	// fruitless read triples it for the next one, because a busy master is slow. A read that brings
	// something has no time limit.
	readSilence = 3 * time.Second
	// maxBarren is how many reads in a row may fail without bringing anything before trimmed
	// returns are passed on as they are.
	maxBarren = 3
)

// kept is a return from the job cache.
type kept struct {
	id string
	Return
}

// reads reads from the job cache the returns whose events were trimmed or lost, such as those of a
// master that died. One read runs at a time, beside the waiting for returns; later requests wait
// for the next read.
type reads struct {
	trimmed map[string]*Return // to read: id to the content of its event, nil if none
	missing bool               // to read: all that are missing
	// the caller waits for a read of all missing returns, to decide which minions are silent
	silence bool
	delay   *time.Timer // until the read after a loss; nil without a loss

	cancel context.CancelFunc // of the running read, nil if none runs
	// the trimmed returns that it reads; one that is requested later may be stored after the read
	// passed it
	asked   map[string]*Return
	all     bool // it also reads all that were missing
	brought int
	barren  int
	found   chan kept
	ended   chan error
}

// want requests the whole return of id; cut is the part that the event had.
func (r *reads) want(id string, cut *Return) {
	if r.trimmed == nil {
		r.trimmed = make(map[string]*Return)
	}
	r.trimmed[id] = cut
}

func (r *reads) wantMissing() {
	r.missing = true
	r.delay = nil
}

// lost requests a read of all missing returns soon.
func (r *reads) lost() {
	if r.delay == nil && !r.missing {
		r.delay = time.NewTimer(lossDelay)
	}
}

// soon fires when the read after a loss is due.
func (r *reads) soon() <-chan time.Time {
	if r.delay == nil {
		return nil
	}
	return r.delay.C
}

// got drops the request for a return that has arrived.
func (r *reads) got(id string) {
	delete(r.trimmed, id)
	delete(r.asked, id)
}

// start begins a read of the requested returns, unless one runs.
func (r *reads) start(ctx context.Context, g *gathering) {
	if r.cancel != nil || len(r.trimmed) == 0 && !r.missing {
		return
	}
	r.asked, r.trimmed = r.trimmed, nil
	r.all, r.missing, r.brought = r.missing, false, 0
	ids := slices.Collect(maps.Keys(r.asked))
	if r.all {
		ids = append(ids, g.missing()...)
	}
	r.found, r.ended = make(chan kept), make(chan error, 1)
	ctx, r.cancel = context.WithCancel(ctx)
	patience := readSilence
	for range min(r.barren, maxBarren-1) {
		patience *= 3
	}
	go read(ctx, r.cancel, patience, g.master, g.jid, ids, r.found, r.ended)
}

// read sends returns to found. Waiting for the receiver does not count as silence.
func read(ctx context.Context, cancel context.CancelFunc, patience time.Duration, m Master,
	jid string, ids []string, found chan<- kept, ended chan<- error) {
	silence := time.AfterFunc(patience, cancel)
	defer silence.Stop()
	ended <- m.ReadReturns(ctx, jid, ids, func(id string, r Return) error {
		silence.Stop()
		defer silence.Reset(patience)
		select {
		case found <- kept{id, r}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// finish ends a read and reports whether that read decides which minions are silent. A trimmed
// return that the cache does not have is passed on as its event had it; one that could not
// be read is tried again.
func (r *reads) finish(g *gathering, err error) (silent bool) {
	r.cancel()
	r.cancel = nil
	asked := r.asked
	r.asked = nil
	r.barren++
	if err == nil || r.brought > 0 {
		r.barren = 0
	}
	again := err != nil && r.brought > 0 // it brought some before it failed
	for id, cut := range asked {
		switch {
		case err != nil && r.barren < maxBarren:
			r.want(id, cut)
			again = true
		case cut != nil:
			g.give(id, *cut)
		}
	}
	if !r.all || !r.silence || r.missing || again || len(r.trimmed) > 0 {
		r.missing = r.missing || r.silence || again && r.all
		return false
	}
	r.silence = false
	return true
}

// end stops the running read and waits for its goroutine.
func (r *reads) end() {
	if r.delay != nil {
		r.delay.Stop()
	}
	if r.cancel != nil {
		r.cancel()
		<-r.ended
		r.cancel = nil
	}
}
