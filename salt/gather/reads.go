package gather

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// lossDelay is how long after a notice of loss the missing returns are read: a burst loses
	// many, and what still waits behind the notice need not be read.
	lossDelay = 250 * time.Millisecond
	// readSilence ends a read of the job cache that has brought nothing for so long; each barren
	// read before makes that three times as long, for a busy master is slow. A read that goes on
	// has no other limit.
	readSilence = 3 * time.Second
	// maxBarren is how many reads in a row may end in an error and bring nothing before trimmed
	// returns are handed on as they are.
	maxBarren = 3
)

// kept is a return of the job cache.
type kept struct {
	id string
	Return
}

// reads are the reads of the job cache for returns whose events were trimmed or lost, as those of a
// master that died. One runs at a time, beside the waiting for returns; what is wanted meanwhile
// waits for the next one.
type reads struct {
	trimmed map[string]*Return // wanted: id to what its event had, nil if nothing
	missing bool               // wanted: all that are missing
	// somebody waits for a read of all that are missing, to tell who is silent
	silence bool
	delay   *time.Timer // until what was lost is wanted, nil if nothing was

	cancel context.CancelFunc // of the read that runs, nil if none does
	// trimmed ones that it reads; what is wanted later may be stored later than it looks
	asked   map[string]*Return
	all     bool // it reads all that were missing, too
	brought int
	barren  int
	found   chan kept
	ended   chan error
}

// want asks for the whole return of id; cut is what there is of it.
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

// lost has all that are missing read soon.
func (r *reads) lost() {
	if r.delay == nil && !r.missing {
		r.delay = time.NewTimer(lossDelay)
	}
}

// soon is when what was lost is to be read.
func (r *reads) soon() <-chan time.Time {
	if r.delay == nil {
		return nil
	}
	return r.delay.C
}

// got forgets what need not be read any more.
func (r *reads) got(id string) {
	delete(r.trimmed, id)
	delete(r.asked, id)
}

// start begins a read of what is wanted, unless one runs.
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

// read hands returns to found. Waiting for whoever takes them does not count as silence.
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

// finish ends a read and reports whether it is the one by which silence is told. A trimmed return
// that the cache does not have is handed on as its event had it, for that is all there is; one that
// could not be read is tried again.
func (r *reads) finish(g *gathering, err error) (silent bool) {
	r.cancel()
	r.cancel = nil
	asked := r.asked
	r.asked = nil
	r.barren++
	if err == nil || r.brought > 0 {
		r.barren = 0
	}
	again := err != nil && r.brought > 0 // it was on its way
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

// end stops the read that runs and waits for its goroutine.
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
