package gather

import (
	"math"
	"time"

	"clustermaster/value"
)

// batchState is what the events of a batch tell: the state of a batch in Salt 3008
// (salt/utils/batch_state.py), with all its returns so far.
type batchState struct {
	b                    *Batch
	width                int
	all, pending         []string
	active, done, failed value.Map // by id: when it was sent the job, its return, and why it has none
	held                 []time.Time
	created              time.Time
	halted               bool
	rest                 time.Time // no progress is told before
}

// manyReturns is how many returns an event may have before progress is told less often.
const manyReturns = 100

// progress fires salt/batch/<jid>/progress. With all returns in each event, events for each of them
// would take time that grows with the square of their number: beyond manyReturns they take at most
// a tenth of the time.
func (s *batchState) progress() {
	began := time.Now()
	if len(s.done) > manyReturns && began.Before(s.rest) {
		return
	}
	s.fire("progress")
	s.rest = began.Add(10 * time.Since(began))
}

func newBatchState(b *Batch, minions []string, width int) *batchState {
	return &batchState{b: b, width: width, all: minions, pending: minions, active: value.Map{},
		done: value.Map{}, failed: value.Map{}, created: time.Now()}
}

// moved notes what the window moved on to.
func (s *batchState) moved(slice, pending []string, now time.Time) {
	for _, id := range slice {
		s.active = append(s.active, value.Pair{Key: id, Value: unixSeconds(now)})
	}
	s.pending = pending
}

func (s *batchState) returned(id string, r Return) {
	s.active = s.active.Without(id)
	data := value.Map{{Key: "ret", Value: r.Return}}
	if r.Out != "" {
		data = append(data, value.Pair{Key: "out", Value: r.Out})
	}
	if len(r.Retcode) > 0 {
		data = append(data, value.Pair{Key: "retcode", Value: r.Retcode})
	}
	s.done = append(s.done, value.Pair{Key: id,
		Value: append(data, value.Pair{Key: "jid", Value: s.b.Job.JID})})
}

func (s *batchState) lost(id string) {
	s.active = s.active.Without(id)
	s.failed = append(s.failed, value.Pair{Key: id, Value: "timeout"})
}

// end fires the last event.
func (s *batchState) end() {
	if s.halted {
		s.fire("halted")
		return
	}
	s.fire("complete")
}

// fire fires salt/batch/<jid>/<what>.
func (s *batchState) fire(what string) {
	if s.b.Fire == nil {
		return
	}
	job := s.b.Job
	wait := make([]any, 0, len(s.held))
	for _, t := range s.held {
		wait = append(wait, unixSeconds(t))
	}
	var reason any
	if s.halted {
		reason = "failhard"
	}
	last := s.created
	if what != "new" {
		last = time.Now()
	}
	base := value.Map{{Key: "jid", Value: job.JID}, {Key: "fun", Value: job.Fun},
		{Key: "tgt", Value: job.Tgt}, {Key: "tgt_type", Value: job.TgtType},
		{Key: "user", Value: s.b.User}, {Key: "driver", Value: "cli"}}
	s.b.Fire("salt/batch/"+job.JID+"/"+what, append(base, value.Pair{Key: "state",
		Value: value.Map{
			{Key: "jid", Value: job.JID}, {Key: "all_minions", Value: s.all},
			{Key: "pending", Value: s.pending}, {Key: "active", Value: s.active},
			{Key: "done", Value: s.done}, {Key: "failed", Value: s.failed},
			{Key: "wait", Value: wait}, {Key: "batch_size", Value: int64(s.width)},
			{Key: "fun", Value: job.Fun}, {Key: "arg", Value: append([]any{}, job.Arg...)},
			{Key: "kwargs", Value: value.Map{}}, {Key: "tgt", Value: job.Tgt},
			{Key: "tgt_type", Value: job.TgtType}, {Key: "failhard", Value: s.b.Failhard},
			{Key: "batch_wait", Value: seconds(s.b.Wait)},
			{Key: "timeout", Value: seconds(s.b.Options.Timeout)},
			{Key: "gather_job_timeout", Value: seconds(s.b.Options.GatherJobTimeout)},
			{Key: "last_progress", Value: unixSeconds(last)},
			{Key: "created", Value: unixSeconds(s.created)}, {Key: "halted", Value: s.halted},
			{Key: "halted_reason", Value: reason}, {Key: "driver", Value: "cli"},
			{Key: "ret", Value: job.Ret}, {Key: "user", Value: s.b.User},
		}}))
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// seconds is a whole number where it is one, as the options of Salt are.
func seconds(d time.Duration) any {
	if s := d.Seconds(); s != math.Trunc(s) {
		return s
	}
	return int64(d / time.Second)
}
