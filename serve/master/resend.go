package master

import (
	"context"
	"slices"
	"time"

	"clustermaster/serve/event"
	"clustermaster/serve/traces"
	"clustermaster/value"
)

const (
	// watchFor is the time before and after a publication in which a loss matters to it. By default
	// a minion finds its way back to a live master within 11 s.
	watchFor = 15 * time.Second
	// watchAtMost is how long after a publication a sending that a master does not acknowledge
	// counts as one more loss. Without it a master that is too busy to acknowledge would get jobs
	// of silent minions again and again.
	watchAtMost = 2 * watchFor
	// maxTrackers bounds the jobs that are watched at a time. Beyond it a job is sent once, as in
	// Salt.
	maxTrackers = 512
	// resendFor bounds one sending of a job that was published before.
	resendFor = 10 * time.Second
)

// resendAfter lists the times after a loss at which a job is sent again to the minions that have
// not returned. A minion ignores a jid that it has.
var resendAfter = []time.Duration{1 * time.Second, 3 * time.Second, 7 * time.Second,
	12 * time.Second}

// job is a published job that may have to be sent again.
type job struct {
	m        *Master
	jid      string
	nocache  bool // its returns are not stored
	load     value.Map
	tgtType  string // of load
	below    bool   // it goes to syndics too; minions below them can't be waited for
	expected []string
	sub      *event.Subscription
	traced   *traces.Publishing

	waiting map[string]struct{} // expected minions that have not returned
	// losses that this job saw, beyond those that the mesh and the sessions report
	losses    []time.Time
	held      bool
	published time.Time // when it was sent first
	sentAt    time.Time // when it was sent last
	// epoch of the AES key that last sealed it, or a newer one that it noted
	epoch uint64
	tries map[time.Time]bool // resend times that have passed
}

// send publishes load to tgt, held as long as an earlier loss requires.
func (j *job) send(ctx context.Context, load value.Map, tgtType string, ids []string) error {
	tgt, _ := load.Get("tgt")
	p := Publication{JID: j.jid, Topics: j.m.topics(tgtType, tgt, ids), NoCache: j.nocache}
	if last, ok := j.lastLoss(j.m.losses()); ok && j.m.opts.PublishRetry {
		p.Hold = max(0, time.Until(last.Add(watchFor)))
	}
	began, again := time.Now(), !j.sentAt.IsZero()
	d, err := j.m.publishSealed(ctx, load, p, j.sub.Unconfirmed())
	j.sentAt = time.Now()
	if !again {
		j.published = j.sentAt
	}
	j.traced.Sent(began, d.lost, again)
	j.held = j.held || p.Hold > 0
	j.epoch = max(j.epoch, d.epoch)
	if j.sentAt.Sub(j.published) > watchAtMost {
		return err
	}
	if len(d.lost) > 0 {
		j.losses = append(j.losses, j.sentAt)
		j.m.log.Warn("publication not confirmed by a peer; it will be sent again", "jid", j.jid,
			"peer", d.lost)
	}
	for _, age := range d.ages {
		j.losses = append(j.losses, j.sentAt.Add(-age))
	}
	return err
}

// lastLoss returns the latest loss that matters now.
func (j *job) lastLoss(known []time.Time) (time.Time, bool) {
	var last time.Time
	for _, t := range slices.Concat(known, j.losses) {
		if t.After(last) {
			last = t
		}
	}
	return last, time.Since(last) < watchFor
}

// end ends the watch of a job.
func (j *job) end() {
	j.sub.Close()
	j.traced.Watched()
}

// track watches a job until all minions have returned or no loss can matter to it.
func (m *Master) track(j *job) {
	if !m.opts.PublishRetry {
		j.end()
		return
	}
	m.closing.Lock()
	defer m.closing.Unlock()
	if m.stopped.Err() != nil {
		j.end()
		return
	}
	select {
	case m.slots <- struct{}{}:
	default:
		m.log.Warn("too many jobs at a time; this one is not sent again if a master is lost", "jid", j.jid)
		j.end()
		return
	}
	m.trackers.Go(func() {
		defer func() { <-m.slots }()
		defer j.end()
		j.watch(m.stopped)
	})
}

func (j *job) watch(ctx context.Context) {
	j.tries = make(map[time.Time]bool)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var asked time.Time
	for len(j.waiting) > 0 || j.below && time.Since(j.published) < watchAtMost {
		select {
		case e, ok := <-j.sub.C:
			if !ok {
				return
			}
			j.take(e)
			continue
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		if epoch := j.m.epoch(); epoch > j.epoch {
			// A minion that signs in to read this job gets the newer key, and then can't read it.
			j.epoch = epoch
			j.noteLosses([]time.Time{now})
		}
		if now.Sub(asked) >= time.Second {
			asked = now
			j.noteLosses(append(j.m.losses(), j.m.peers.losses(ctx, j.m)...))
		}
		if j.due(now) {
			j.resend(ctx)
		}
		if last := j.latest(); now.Sub(j.published) > watchFor && now.Sub(last) > watchFor {
			break
		}
	}
	if j.held && ctx.Err() == nil {
		j.m.release(ctx, j.jid)
	}
}

// epoch returns that of the active AES key; 0 before there is one.
func (m *Master) epoch() uint64 {
	if s := m.deps.Cluster.Secrets(); len(s.AES) > 0 {
		return s.AES[0].Epoch
	}
	return 0
}

// take notes a return.
func (j *job) take(e event.Event) {
	data, err := value.UnpackRawMap(e.Data)
	if err == nil {
		delete(j.waiting, data.String("id"))
	}
}

// missing lists the minions that have not returned, in the order of the target.
func (j *job) missing() []string {
	out := make([]string, 0, len(j.waiting))
	for _, id := range j.expected {
		if _, is := j.waiting[id]; is {
			out = append(out, id)
		}
	}
	return out
}

// sameLoss is the greatest difference between the times of two reports of one loss.
const sameLoss = 700 * time.Millisecond

// noteLosses adds new losses near the time of publication.
func (j *job) noteLosses(found []time.Time) {
	for _, t := range found {
		if d := t.Sub(j.published); d > watchFor || d < -watchFor {
			continue
		}
		if !slices.ContainsFunc(j.losses,
			func(l time.Time) bool { return l.Sub(t).Abs() < sameLoss }) {
			j.losses = append(j.losses, t)
		}
	}
}

func (j *job) latest() time.Time {
	var last time.Time
	for _, t := range j.losses {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// due reports whether a time to resend has come since the last sending, and marks all such times as
// passed.
func (j *job) due(now time.Time) bool {
	due := false
	for _, loss := range j.losses {
		for _, after := range resendAfter {
			at := loss.Add(after)
			if at.After(now) || j.tries[at] {
				continue
			}
			j.tries[at] = true
			due = due || at.After(j.sentAt)
		}
	}
	return due
}

// resend sends the job to the minions that have not returned, as a list. For syndics it sends the
// job as it was: the minions below them are not on the list.
func (j *job) resend(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resendFor)
	defer cancel()
	asking, done := context.WithTimeout(ctx, 2*time.Second)
	ids, err := j.m.deps.Jobs.Returned(asking, j.jid)
	done()
	if err == nil {
		for _, id := range ids {
			delete(j.waiting, id)
		}
	}
	missing := j.missing()
	load, tgtType, ids := j.load, j.tgtType, j.expected
	if !j.below {
		if len(missing) == 0 {
			return // the loop ends too, and releases
		}
		load = slices.Clone(load).Set("tgt", textual(missing)).Set("tgt_type",
			"list").Without("delimiter")
		tgtType, ids = "list", missing
	}
	if err := j.send(ctx, load, tgtType, ids); err != nil {
		j.m.log.Warn("job could not be sent again", "jid", j.jid, "err", err)
		return
	}
	j.m.metrics.resent.Inc()
	j.m.log.Info("job sent again after a loss", "jid", j.jid, "n", len(missing))
}
