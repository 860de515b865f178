package gather

import (
	"context"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"clustermaster/value"
)

// A Batch runs a job on the minions that answer a ping, as Salt's batch does: on a limited number
// at a time, with the next one as each returns. All parts of the job have one jid. Run calls the
// functions from its own goroutine, and leaves out nil ones.
type Batch struct {
	Job Publish // if its JID is empty Run makes one
	// of the window: a number of minions, or a percentage of those that answered the ping, such as
	// 25%
	Size     string
	Wait     time.Duration // from a return until its place in the window is free
	Failhard bool          // end at the first return that failed
	Options  Options

	// Fire gets the events salt/batch/<jid>/new, progress, complete and halted of Salt 3008.
	Fire func(tag string, data value.Map)
	User string // in these events: the option user, whoever ordered the job

	OnPing   func(Summary)             // of the ping, before anything runs
	OnSlice  func(ids []string)        // the window moved on to these
	OnReturn func(id string, r Return) // one minion returned
	OnSilent func(id string)           // one that answered the ping and did not return
}

// BatchSummary is how a batch ended.
type BatchSummary struct {
	JID    string // "" if no minion answered the ping
	Live   int    // minions that answered it
	Halted bool   // because of Failhard
}

// happening is a message of a slice of the batch to the loop.
type happening struct {
	id    string
	ret   Return
	ended bool     // a slice has ended; lost are its minions that never returned
	lost  []string //
	err   error
}

// Run runs the batch to its end. The error is a Size that can't be read, a failure to publish, that
// of Options.Hold, or ctx's.
func (b *Batch) Run(ctx context.Context, m Master) (s BatchSummary, err error) {
	minions, err := b.ping(ctx, m)
	if err != nil || len(minions) == 0 {
		return s, err
	}
	s.Live = len(minions)
	width, err := batchSize(b.Size, len(minions))
	if err != nil {
		return s, err
	}
	if b.Job.JID == "" {
		if b.Job.JID, err = m.NewJID(ctx); err != nil {
			return s, fmt.Errorf("make job id: %w", err)
		}
	}
	s.JID = b.Job.JID
	ctx, cancel := context.WithCancel(ctx)
	happenings := make(chan happening)
	slices, active := 0, make(map[string]bool)
	state := newBatchState(b, minions, width)
	state.fire("new")
	defer func() { // wait for every slice, whatever ended the loop
		cancel()
		for slices > 0 {
			if h := <-happenings; h.ended {
				slices--
			}
		}
	}()
	defer state.end()
	var arrived *happening // passed on after the window moved, as in Salt
	lost := false          // some minions of a slice never returned
	free := time.NewTimer(0)
	defer free.Stop()
	held := []time.Time{} // when places become free
	for len(minions) > 0 || len(active) > 0 || arrived != nil || lost {
		now := time.Now()
		held = later(held, now)
		state.held = held
		var slice []string
		if n := min(width-len(active)-len(held), len(minions)); n > 0 {
			slice, minions = minions[:n:n], minions[n:]
			for _, id := range slice {
				active[id] = true
			}
			state.moved(slice, minions, now)
		}
		if len(slice) > 0 || arrived != nil || lost {
			state.progress()
		}
		if len(slice) > 0 {
			if b.OnSlice != nil {
				b.OnSlice(slice)
			}
			slices++
			go b.slice(ctx, m, s.JID, slice, happenings)
		}
		if arrived != nil {
			if err := b.give(*arrived); err != nil {
				return s, err
			}
			arrived = nil
			continue
		}
		if lost {
			lost = false
			continue
		}
		if len(held) > 0 {
			free.Reset(held[0].Sub(now))
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-free.C:
		case h := <-happenings:
			if h.ended {
				slices--
				if h.err != nil {
					return s, h.err
				}
				lost = len(h.lost) > 0
				for _, id := range h.lost {
					delete(active, id)
					state.lost(id)
					if b.OnSilent != nil {
						b.OnSilent(id)
					}
				}
				continue
			}
			delete(active, h.id)
			state.returned(h.id, h.ret)
			if b.Wait > 0 {
				held = append(held, time.Now().Add(b.Wait))
			}
			if b.Failhard && h.ret.Code() != 0 {
				s.Halted, state.halted, state.held = true, true, held
				state.fire("progress")
				return s, b.give(h)
			}
			arrived = &h
		}
	}
	return s, nil
}

func (b *Batch) give(h happening) error {
	if err := b.Options.hold(b.Job.JID, h.ret); err != nil {
		return err
	}
	if b.OnReturn != nil {
		b.OnReturn(h.id, h.ret)
	}
	return nil
}

func later(times []time.Time, now time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(now) {
		times = times[1:]
	}
	return times
}

// slice runs the job on some minions. It reports each return, then its own end.
func (b *Batch) slice(ctx context.Context, m Master, jid string, ids []string,
	tell chan<- happening) {
	job := b.Job
	job.Tgt, job.TgtType, job.JID = ids, "list", jid
	mine := make(map[string]bool, len(ids))
	for _, id := range ids {
		mine[id] = true
	}
	opts := b.Options
	opts.Hold = nil // each slice sees the returns of all, which share the jid
	summary, err := Run(ctx, m, job, opts, func(id string, ret Return) {
		if mine[id] {
			mine[id] = false
			tell <- happening{id: id, ret: ret}
		}
	})
	if err == nil && summary.Error != "" {
		err = fmt.Errorf("publish to %s: %s", strings.Join(ids, ", "), summary.Error)
	}
	h := happening{ended: true, err: err}
	for _, id := range ids {
		if mine[id] {
			h.lost = append(h.lost, id)
		}
	}
	tell <- h
}

// ping finds the minions that answer, sorted.
func (b *Batch) ping(ctx context.Context, m Master) ([]string, error) {
	job := b.Job
	job.Fun, job.Arg, job.Ret, job.JID = "test.ping", nil, "", ""
	job.Kwargs = job.Kwargs.Without("metadata", "ret_config", "ret_kwargs", "module_executors",
		"executor_opts", "start_event")
	var live []string
	summary, err := Run(ctx, m, job, b.Options,
		func(id string, _ Return) { live = append(live, id) })
	if err != nil {
		return nil, err
	}
	if b.OnPing != nil {
		b.OnPing(summary)
	}
	sort.Strings(live)
	return live, nil
}

// Having asks the minions of a job's target for their functions, and returns those that have fun,
// sorted.
func Having(ctx context.Context, m Master, job Publish, o Options, fun string) (ids []string,
	s Summary, err error) {
	job.Fun, job.Arg, job.Ret, job.JID = "sys.list_functions", nil, "", ""
	s, err = Run(ctx, m, job, o, func(id string, ret Return) {
		val, _ := ret.Return.Unpack()
		list, _ := val.([]any)
		for _, f := range list {
			if f == fun {
				ids = append(ids, id)
				return
			}
		}
	})
	sort.Strings(ids)
	return ids, s, err
}

// batchSize reads a number of minions or a percentage of n: rounded up below one, down above.
func batchSize(spec string, n int) (int, error) {
	bad := fmt.Errorf("Invalid batch specification %s: must be an integer or percentage string like '10' or '25%%'.", value.Repr(spec)) // Salt's text
	if strings.Contains(spec, "%") {
		percent, err := strconv.ParseFloat(strings.TrimSpace(strings.Trim(spec, "%")), 64)
		if err != nil || math.IsNaN(percent) || math.IsInf(percent, 0) {
			return 0, bad
		}
		size := percent / 100 * float64(n)
		if size < 1 {
			return max(1, int(math.Ceil(size))), nil
		}
		return int(math.Min(size, math.MaxInt32)), nil
	}
	size, ok := value.ParseInt(spec)
	if !ok {
		return 0, bad
	}
	return max(1, size), nil
}
