package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/wire"
)

// job is a job of one minion, and what may be stored as its return.
type job struct {
	jid     string
	account bool     // returns tell of the job and its end, as to a master that does not know it
	last    string   // the value that was sent last
	maybe   []string // packed values that were sent before an acknowledgement, or with it
	acked   bool
}

// newJob makes a job with an id by a master's clock.
func (l *load) newJob(by *master, account bool) *job {
	now := time.Now()
	if i := by.up(); i != nil {
		now = i.node.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.jobs[wire.JID(now)] != nil {
		now = now.Add(time.Microsecond)
	}
	j := &job{jid: wire.JID(now), account: account}
	l.jobs[j.jid] = j
	return j
}

// returnCall sends a minion's return. One without an acknowledgement is sent again to other
// masters, sometimes with another value; some are sent to two masters at the same time.
func (l *load) returnCall(number int, m *master, chance *rand.Rand, c *cell, text string) {
	anyone := func() *master { return l.w.masters[chance.IntN(len(l.w.masters))] }
	j, also := c.unanswered, (*master)(nil)
	switch dice := chance.IntN(8); {
	case j != nil && dice > 1:
		text = j.last
	case j != nil:
	case dice == 0 && c.answered != nil:
		l.secondReturn(number, m, c.answered, c.id, text)
		return
	default:
		j = l.newJob(anyone(), chance.IntN(2) == 0)
		if dice == 1 {
			also = anyone()
		}
	}
	j.last, c.unanswered = text, j
	sent := []*sending{{m: m, text: text}}
	if also != nil && also != m {
		sent = append(sent, &sending{m: also, text: "the other " + text})
	}
	var calls sync.WaitGroup
	for _, s := range sent {
		calls.Go(func() { l.send(s, j, c.id) })
	}
	calls.Wait()
	before := len(j.maybe)
	var acked []ack
	for _, s := range sent {
		l.count(number, "return.sent", s.m, s.err, fmt.Sprint(j.jid, " ", s.first))
		if s.maybe() && !slices.Contains(j.maybe, s.ack.text) {
			j.maybe = append(j.maybe, s.ack.text)
		}
		if s.err == nil {
			acked = append(acked, s.ack)
		}
	}
	switch {
	case len(acked) > 0:
		if before == 0 && !slices.ContainsFunc(sent, (*sending).maybe) {
			l.w.fault("%s says that there was a return %s of %s before", m.id, j.jid, c.id)
		}
		a := acked[0]
		if a.thin {
			a = acked[len(acked)-1]
		}
		j.acked, c.unanswered = true, nil
		if c.answered = j; a.thin {
			c.answered = nil
		}
		l.mu.Lock()
		l.returns[j.jid] = a
		l.mu.Unlock()
		l.count(number, "return", m, nil, j.jid)
	case chance.IntN(8) == 0: // minions don't try for ever
		c.unanswered = nil
	}
}

// sending is one call with a return, and its outcome.
type sending struct {
	m     *master
	text  string
	ack   ack
	first bool
	err   error
}

// maybe reports that this value may be the stored one.
func (s *sending) maybe() bool { return s.first || s.err != nil && s.err != errDown }

func (l *load) send(s *sending, j *job, id string) {
	packed, err := value.Pack(s.text)
	if err != nil {
		panic(err)
	}
	ret := jobcache.Return{Return: packed}
	var account value.Map
	if j.account {
		account, ret.End = value.Map{}.Set("id", id), wire.JIDTime(j.jid)
	}
	s.ack, s.err = s.m.writes(j.jid, func(ctx context.Context, i *instance) (err error) {
		s.first, err = i.jobs.SaveReturn(ctx, j.jid, id, ret, account)
		return err
	})
	s.ack.text, s.first = string(packed), s.first && s.err == nil
}

// secondReturn sends another value after the acknowledgement of one, which must stay.
func (l *load) secondReturn(number int, m *master, j *job, id, text string) {
	if l.w.clocksDiffered.Load() { // the earlier value is the one with the earlier time
		return
	}
	calm := l.w.calm()
	s := &sending{m: m, text: "second " + text}
	l.send(s, j, id)
	if l.w.clocksDiffered.Load() && s.maybe() {
		j.maybe = append(j.maybe, s.ack.text)
	} else if s.first && calm && l.w.calm() {
		l.w.fault("%s takes a second return %s of %s for the first", m.id, j.jid, id)
	}
	l.count(number, "return.second", m, s.err, fmt.Sprint(j.jid, " ", s.first))
}

// finalReturns checks that all masters show the same return of each job, and each acknowledged one.
func (l *load) finalReturns() {
	w := l.w
	for _, jid := range sorted(l.jobs) {
		j := l.jobs[jid]
		a := l.returns[jid]
		free := !j.acked || a.excused()
		var said string
		err := w.until(2*time.Minute, func() error {
			for n, m := range w.masters {
				var got string
				err := m.on(func(ctx context.Context, i *instance) (err error) {
					if got, err = returned(ctx, i.jobs, jid); err == nil && j.account && !free {
						err = told(ctx, i.jobs, jid)
					}
					return err
				})
				if err != nil || !slices.Contains(j.maybe, got) && !(free && got == "") && !a.excused() {
					what := "sent"
					if j.acked {
						what = "acknowledged"
					}
					w.fault("return %s was %s; %s says %.40q, %v, and not one of %.40q", jid, what, m.id, got,
						err, j.maybe)
					return nil
				}
				if n > 0 && got != said {
					return fmt.Errorf("masters show different returns %s: %.40q, and %s %.40q", jid, said, m.id, got)
				}
				said = got
			}
			return nil
		})
		if err != nil {
			w.fault("%v", err)
		}
		if a.text = said; j.acked {
			l.returns[jid] = a
		}
	}
}

// told checks what a return told of its job.
func told(ctx context.Context, jobs *jobcache.Cache, jid string) error {
	job, found, err := jobs.Job(ctx, jid)
	if err == nil && (!found || job.Load.String("id") == "" || job.EndTime != wire.JIDTime(jid)) {
		err = fmt.Errorf("of the job it says %v, ended %q", job.Load, job.EndTime)
	}
	return err
}
