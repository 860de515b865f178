package cli

import (
	"context"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"clustermaster/gather"
	"clustermaster/internal/pytext"
	"clustermaster/output"
	"clustermaster/wire"
)

// static waits for all returns and prints one document. Salt runs it as a quiet batch of all minions that answer a ping, and leaves with 0 when
// anything came back.
func (r *saltRun) static(ctx context.Context) int {
	size := r.v.text("batch")
	if size == "" {
		size = "100%"
	}
	b := &batch{run: r, size: size, quiet: true}
	all := wire.Map{}
	b.onReturn = func(id string, ret gather.Return) {
		value, err := unpacked(ret.Return)
		if err != nil {
			value = nil
		}
		all = all.Set(id, value)
	}
	b.onSilent = func(id string) { all = all.Set(id, wire.Map{}) }
	if err := b.do(ctx); err != nil {
		return r.stopped(ctx, b.jid, err)
	}
	ids := make([]string, len(all))
	r.print.opts.Static = true
	r.print.opts.Fun, _ = r.job.Fun.(string)
	return r.document(ids, output.Result{Value: all})
}

// batch runs the job on a window of minions that slides on as they return.
func (r *saltRun) batch(ctx context.Context) int {
	b := &batch{run: r, size: r.v.text("batch")}
	highest := 0
	var failure error
	b.onReturn = func(id string, ret gather.Return) {
		code := retcode(ret.Retcode)
		highest = max(highest, code)
		value, err := unpacked(ret.Return)
		doc := wire.Map{{Key: "retcode", Value: int64(code)}, {Key: "jid", Value: b.jid}, {Key: id, Value: value}}
		if err == nil {
			err = r.print.show(output.Result{Value: doc, Outputter: ret.Out})
		}
		if err != nil && failure == nil {
			failure = err
		}
	}
	err := b.do(ctx)
	switch {
	case err != nil:
		return r.stopped(ctx, b.jid, err)
	case failure != nil:
		r.env.errorf("ERROR: %s", failure)
		return ExitFailed
	case b.live == 0:
		r.env.errorf("ERROR: No return received")
		return ExitNoReturn
	}
	if b.halted {
		r.env.logError("Batch run stopped due to failhard")
	}
	return highest
}

// batch is one run of a window over the minions that answered a ping. All callbacks come from the goroutine of do.
type batch struct {
	run      *saltRun
	size     string // number, or number%
	quiet    bool
	onReturn func(id string, ret gather.Return)
	onSilent func(id string)

	jid    string
	live   int // minions that answered the ping
	halted bool
}

// happening is what a slice of the batch tells the loop.
type happening struct {
	id    string
	ret   gather.Return
	ended bool     // a slice is over; silent are those of it that never returned
	lost  []string //
	err   error
}

func (b *batch) do(ctx context.Context) error {
	minions, err := b.ping(ctx)
	if err != nil || len(minions) == 0 {
		return err
	}
	b.live = len(minions)
	width, err := batchSize(b.size, len(minions))
	if err != nil {
		return err
	}
	b.jid = wire.JID(time.Now())
	ctx, cancel := context.WithCancel(ctx)
	happenings := make(chan happening)
	slices, active := 0, make(map[string]bool)
	defer func() { // wait for every slice, whatever ended the loop
		cancel()
		for slices > 0 {
			if h := <-happenings; h.ended {
				slices--
			}
		}
	}()
	var arrived *happening // a return is shown after the window slid on, as in Salt
	wait := time.Duration(b.run.v.float("batch_wait") * float64(time.Second))
	free := time.NewTimer(0)
	defer free.Stop()
	held := []time.Time{} // slots that are free from then on
	for len(minions) > 0 || len(active) > 0 || arrived != nil {
		now := time.Now()
		held = later(held, now)
		if n := min(width-len(active)-len(held), len(minions)); n > 0 {
			slice := minions[:n:n]
			minions = minions[n:]
			for _, id := range slice {
				active[id] = true
			}
			if !b.quiet {
				b.run.env.println("\nExecuting run on " + pytext.Repr(slice) + "\n")
			}
			slices++
			go b.slice(ctx, slice, happenings)
		}
		if arrived != nil {
			b.onReturn(arrived.id, arrived.ret)
			arrived = nil
			continue
		}
		if len(held) > 0 {
			free.Reset(held[0].Sub(now))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-free.C:
		case h := <-happenings:
			if h.ended {
				slices--
				if h.err != nil {
					return h.err
				}
				for _, id := range h.lost {
					delete(active, id)
					if b.onSilent != nil {
						b.onSilent(id)
					}
				}
				continue
			}
			delete(active, h.id)
			if wait > 0 {
				held = append(held, time.Now().Add(wait))
			}
			if b.run.v.on("failhard") && retcode(h.ret.Retcode) != 0 {
				b.halted = true
				b.onReturn(h.id, h.ret)
				return nil
			}
			arrived = &h
		}
	}
	return nil
}

func later(times []time.Time, now time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(now) {
		times = times[1:]
	}
	return times
}

// slice runs the job on some minions and tells of each return, then of the end.
func (b *batch) slice(ctx context.Context, ids []string, tell chan<- happening) {
	job := b.run.job
	job.Tgt, job.TgtType, job.JID = ids, "list", b.jid
	mine := make(map[string]bool, len(ids))
	for _, id := range ids {
		mine[id] = true
	}
	summary, err := gather.Run(ctx, b.run.daemon, job, b.run.wait, func(id string, ret gather.Return) {
		if mine[id] { // all slices share the jid
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

// ping finds the minions that answer, sorted, and says which don't.
func (b *batch) ping(ctx context.Context) ([]string, error) {
	job := b.run.job
	job.Fun, job.Arg, job.Ret = "test.ping", nil, ""
	job.Kwargs = job.Kwargs.Without("metadata", "ret_config", "ret_kwargs", "module_executors", "executor_opts", "start_event")
	var live []string
	summary, err := gather.Run(ctx, b.run.daemon, job, b.run.wait, func(id string, _ gather.Return) { live = append(live, id) })
	if err != nil {
		return nil, err
	}
	if !b.run.sent(summary.Published) {
		if !b.quiet {
			b.run.env.println("No minions matched the target.")
		}
		return nil, nil
	}
	if !b.quiet {
		for _, id := range summary.NotReturned {
			b.run.env.println("Minion " + id + " did not respond. No job will be sent.")
		}
	}
	sort.Strings(live)
	return live, nil
}

// batchSize reads a number of minions or a percentage of n: rounded up below one, down above.
func batchSize(spec string, n int) (int, error) {
	bad := fmt.Errorf("Invalid batch specification %s: must be an integer or percentage string like '10' or '25%%'.", quoted(spec)) //nolint:staticcheck // Salt's text
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
	size, ok := pythonInt(spec)
	if !ok {
		return 0, bad
	}
	return max(1, size), nil
}
