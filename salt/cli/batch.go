package cli

import (
	"context"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/salt/output"
	"clustermaster/value"
)

// fireTimeout is Salt's.
const fireTimeout = time.Second

// static waits for all returns and prints one document. Salt runs it as a quiet batch of all
// minions that answer a ping, and exits with 0 if any minion returned.
func (r *saltRun) static(ctx context.Context) int {
	size := r.v.text("batch")
	if size == "" {
		size = "100%"
	}
	b := r.window(ctx, size)
	refusal := ""
	b.OnPing = func(s gather.Summary) {
		if refusal = reason(s.Published); refusal == "" {
			r.sent(s.Published)
		}
	}
	all := value.Map{}
	b.OnReturn = func(id string, ret gather.Return) {
		val, err := unpacked(ret.Return)
		if err != nil {
			val = nil
		}
		all = all.Set(id, val)
	}
	b.OnSilent = func(id string) { all = all.Set(id, value.Map{}) }
	if s, err := b.Run(ctx, r.daemon); err != nil {
		return r.stopped(ctx, s.JID, err)
	}
	if refusal != "" {
		return r.noBatch(refusal)
	}
	ids := make([]string, len(all))
	r.print.opts.Static = true
	r.print.opts.Fun, _ = r.job.Fun.(string)
	return r.document(ids, output.Result{Value: all})
}

// batch runs the job on a sliding window of minions.
func (r *saltRun) batch(ctx context.Context) int {
	b := r.window(ctx, r.v.text("batch"))
	refusal := ""
	b.OnPing = func(s gather.Summary) {
		if refusal = reason(s.Published); refusal != "" {
			return
		}
		if !r.sent(s.Published) {
			r.env.println("No minions matched the target.")
			return
		}
		for _, id := range s.NotReturned {
			r.env.println("Minion " + id + " did not respond. No job will be sent.")
		}
	}
	b.OnSlice = func(ids []string) { r.env.println("\nExecuting run on " + value.Repr(ids) + "\n") }
	highest := 0
	var failure error
	b.OnReturn = func(id string, ret gather.Return) {
		code := ret.Code()
		highest = max(highest, code)
		val, err := unpacked(ret.Return)
		doc := value.Map{{Key: "retcode", Value: int64(code)}, {Key: "jid", Value: b.Job.JID},
			{Key: id, Value: val}}
		if err == nil {
			err = r.print.show(output.Result{Value: doc, Outputter: ret.Out})
		}
		if err != nil && failure == nil {
			failure = err
		}
	}
	s, err := b.Run(ctx, r.daemon)
	switch {
	case err != nil:
		return r.stopped(ctx, s.JID, err)
	case refusal != "":
		return r.noBatch(refusal)
	case failure != nil:
		r.env.errorf("ERROR: %s", failure)
		return ExitFailed
	case s.Live == 0:
		r.env.errorf("ERROR: No return received")
		return ExitNoReturn
	}
	if s.Halted {
		r.env.logError("Batch run stopped due to failhard")
	}
	return highest
}

// noBatch ends a batch whose ping the master refused.
func (r *saltRun) noBatch(refusal string) int {
	r.env.errorf("ERROR: publish to %s: %s", value.Str(r.job.Tgt), refusal)
	return ExitFailed
}

// window is this run's job as a batch.
func (r *saltRun) window(ctx context.Context, size string) *gather.Batch {
	return &gather.Batch{
		Job: r.job, Size: size, Wait: time.Duration(r.v.float("batch_wait") * float64(time.Second)),
		Failhard: r.v.on("failhard"), Options: r.wait, Fire: r.firing(ctx), User: r.opts.User,
	}
}

// firing returns what fires the events of a batch. As in Salt, a batch whose events the master does
// not take goes on without them: those of a user who may not fire events, and those for a master of
// an older release.
func (r *saltRun) firing(ctx context.Context) func(tag string, data value.Map) {
	ctx = context.WithoutCancel(ctx) // an interrupted batch still fires its last event
	refused := false
	return func(tag string, data value.Map) {
		if refused {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, fireTimeout)
		defer cancel()
		refused = r.daemon.Fire(ctx, tag, data) != nil
	}
}
