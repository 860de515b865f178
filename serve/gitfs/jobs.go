package gitfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermaster/serve/gitfs/gitpb"
	"clustermaster/value/fnmatch"
)

// Bounds of jobs that keep their commits.
const (
	maxViews     = 64 // changes back to which a job may hold
	maxJobsOfOne = 32 // of a minion
	maxMinions   = 1 << 20
	maxJobLimit  = 7 * 24 * time.Hour
	tellTimeout  = 1500 * time.Millisecond
	awaitView    = 500 * time.Millisecond // for a master that is a change behind, or ahead
	pinTries     = 4
	// unusedJob is when a job is given up for which the minion requests no files: it never got the
	// job.
	unusedJob = 5 * time.Minute
)

// jobs keeps each minion at the commits that were in force when its job began. Requests for files
// do not name their job, so this applies to the minion until it returns.
type jobs struct {
	some atomic.Bool // there are pins

	mu     sync.Mutex          // guards all below
	views  map[string]*view    // by name: the recent ones
	recent []string            // names of views, the newest last
	pins   map[string][]jobPin // by minion, the oldest job first
	added  chan struct{}       // closed when a view is added
}

// jobPin holds a minion at a view.
type jobPin struct {
	jid, view string
	until     time.Time
	first     time.Time // when it became the minion's oldest; zero: it is not
	used      bool      // the minion has requested files since
}

// over reports whether a pin no longer counts.
func (p *jobPin) over(now time.Time) bool {
	return !now.Before(p.until) || !p.used && !p.first.IsZero() && now.Sub(p.first) > unusedJob
}

func newJobs() *jobs {
	return &jobs{views: make(map[string]*view), pins: make(map[string][]jobPin),
		added: make(chan struct{})}
}

// nameOf makes the name of a view of all mirrors. Masters that serve the same have the same name
// for it.
func nameOf(keys []string, seqs map[string]uint64, pins map[string]map[string]Pin,
	awaited map[string]bool) string {
	h := sha256.New()
	for _, key := range keys {
		fmt.Fprintf(h, "%s %d %d\n", key, seqs[key], len(pins[key]))
		if awaited[key] {
			fmt.Fprintln(h, "awaited")
		}
		for _, env := range sorted(pins[key]) {
			fmt.Fprintf(h, "%q %s %q\n", env, pins[key][env].Commit, pins[key][env].By)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// saw remembers a view that is now in force.
func (j *jobs) saw(v *view) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.views[v.name] = v
	j.recent = append(slices.DeleteFunc(j.recent, func(n string) bool { return n == v.name }), v.name)
	if len(j.recent) > maxViews {
		delete(j.views, j.recent[0])
		j.recent = slices.Delete(j.recent, 0, 1)
	}
	close(j.added)
	j.added = make(chan struct{})
}

// pin keeps minions at a view for a job. It reports whether the view is known.
func (j *jobs) pin(name, jid string, minions []string, now time.Time, limit time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.views[name] == nil {
		return false
	}
	for _, id := range minions {
		j.left(id, now, "")
		list := j.pins[id]
		if at := slices.IndexFunc(list, func(p jobPin) bool { return p.jid == jid }); at >= 0 {
			list[at].view, list[at].until = name, now.Add(limit)
			continue
		}
		p := jobPin{jid: jid, view: name, until: now.Add(limit)}
		if len(list) == 0 {
			p.first = now
		}
		if len(list) < maxJobsOfOne {
			j.pins[id] = append(list, p)
		}
	}
	j.some.Store(len(j.pins) > 0)
	return true
}

// left drops the expired pins of a minion, and that of a job.
func (j *jobs) left(minion string, now time.Time, jid string) {
	list := slices.DeleteFunc(j.pins[minion],
		func(p jobPin) bool { return p.jid == jid || p.over(now) })
	if len(list) == 0 {
		delete(j.pins, minion)
	} else if j.pins[minion] = list; list[0].first.IsZero() {
		list[0].first = now
	}
	j.some.Store(len(j.pins) > 0)
}

// note records what a minion did: it requested files, returned for a job, or started.
func (j *jobs) note(what gitpb.NoteJobRequest_What, minion, jid string, now time.Time) {
	if !j.some.Load() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch what {
	case gitpb.NoteJobRequest_USED:
		for i := range j.pins[minion] {
			if p := &j.pins[minion][i]; p.jid == jid {
				p.used = true
			}
		}
	case gitpb.NoteJobRequest_RETURNED:
		j.left(minion, now, jid)
	case gitpb.NoteJobRequest_STARTED:
		delete(j.pins, minion)
	}
}

// expire drops pins after their time.
func (j *jobs) expire(now time.Time) {
	if !j.some.Load() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for id := range j.pins {
		j.left(id, now, "")
	}
}

// of returns the view that a minion's request is served from; nil means the present one. It also
// returns the job if this is the first file that the minion requests for it.
func (j *jobs) of(minion string, now time.Time) (v *view, began string) {
	if !j.some.Load() {
		return nil, ""
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pins[minion]) == 0 {
		return nil, ""
	}
	j.left(minion, now, "")
	if len(j.pins[minion]) == 0 {
		return nil, ""
	}
	p := &j.pins[minion][0]
	if !p.used {
		began = p.jid
	}
	p.used = true
	return j.views[p.view], began
}

// known lists the views that jobs may be kept at.
func (j *jobs) known() []*view {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]*view, 0, len(j.views))
	for _, v := range j.views {
		out = append(out, v)
	}
	return out
}

// await waits for a view that was added after the channel was taken.
func await(ctx context.Context, added <-chan struct{}, until <-chan time.Time) bool {
	select {
	case <-added:
		return true
	case <-until:
	case <-ctx.Done():
	}
	return false
}

// drop forgets views. Minions that jobs keep at one get the present commits.
func (j *jobs) drop(gone func(*view) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recent = slices.DeleteFunc(j.recent, func(name string) bool {
		if !gone(j.views[name]) {
			return false
		}
		delete(j.views, name)
		return true
	})
}

func (j *jobs) next() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.added
}

// pinSoon is pin, but waits briefly for an unknown view.
func (j *jobs) pinSoon(ctx context.Context, name, jid string, minions []string,
	limit time.Duration) bool {
	timer := time.After(awaitView)
	for {
		added := j.next()
		if j.pin(name, jid, minions, time.Now(), limit) {
			return true
		}
		if !await(ctx, added, timer) {
			return false
		}
	}
}

// keeps reports whether files for a job's function must come from one set of commits.
func (s *Store) keeps(fun any) bool {
	if len(s.opts.JobFunctions) == 0 || len(s.files) == 0 {
		return false
	}
	return slices.ContainsFunc(texts(fun), func(name string) bool {
		return slices.ContainsFunc(s.opts.JobFunctions,
			func(pattern string) bool { return fnmatch.Match(pattern, name) })
	})
}

// Begin makes all masters serve minions from the present commits until they have returned for a
// job. Call it before the job is sent. fun is a name, or a list of names.
func (s *Store) Begin(ctx context.Context, fun any, jid string, minions []string) {
	if !s.keeps(fun) || len(minions) == 0 {
		return
	}
	var missed []string
	for range pinTries {
		added, v := s.jobs.next(), s.view.Load()
		s.jobs.pin(v.name, jid, minions, time.Now(), s.opts.JobLimit)
		var unknown bool
		missed, unknown = s.tell(ctx, func(ctx context.Context, c gitpb.GitClient) (bool, error) {
			r, err := c.PinJob(ctx, &gitpb.PinJobRequest{Jid: jid, Minions: minions, View: v.name,
				LimitMs: s.opts.JobLimit.Milliseconds()})
			return r.GetKnown(), err
		})
		// Another master is ahead of this one: its commits come here in a moment.
		if !unknown || ctx.Err() != nil {
			break
		}
		if s.view.Load().name == v.name {
			await(ctx, added, time.After(awaitView))
		}
	}
	if len(missed) > 0 {
		s.log.Warn("on these masters, files of a job may come from other commits",
			"jid", jid, "masters", missed)
	}
}

// End releases a minion that returns for a job, on all masters. Call it before the return is
// acknowledged, because the minion's next job may begin then.
func (s *Store) End(ctx context.Context, fun any, jid, minion string) {
	if !s.keeps(fun) {
		return
	}
	s.noteAll(ctx, gitpb.NoteJobRequest_RETURNED, minion, jid)
}

// Started releases a minion that has just started, because it runs no job.
func (s *Store) Started(ctx context.Context, minion string) {
	if len(s.opts.JobFunctions) > 0 {
		s.noteAll(ctx, gitpb.NoteJobRequest_STARTED, minion, "")
	}
}

// noteAll tells all masters what a minion did. A master that misses it keeps the minion's pin until
// the limit.
func (s *Store) noteAll(ctx context.Context, what gitpb.NoteJobRequest_What, minion, jid string) {
	s.jobs.note(what, minion, jid, time.Now())
	s.tell(ctx, func(ctx context.Context, c gitpb.GitClient) (bool, error) {
		_, err := c.NoteJob(ctx, &gitpb.NoteJobRequest{What: what, Minion: minion, Jid: jid})
		return true, err
	})
}

// tell calls all other masters that can be reached. It lists those that did not answer, or answered
// false, and reports whether there are any of the latter.
func (s *Store) tell(ctx context.Context,
	call func(context.Context, gitpb.GitClient) (bool, error)) (missed []string, refused bool) {
	if s.peers == nil {
		return nil, false
	}
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	for _, node := range s.peers.Members() {
		if node == s.peers.Self() || !s.peers.Alive(node) {
			continue
		}
		wg.Go(func() {
			done := false
			c, err := s.client(node)
			if err == nil {
				done, err = call(ctx, c)
			}
			if err == nil && done {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			missed, refused = append(missed, node), refused || err == nil
		})
	}
	wg.Wait()
	slices.Sort(missed)
	return missed, refused
}

type viewKey struct{}

// For returns a context in which file requests are served from the commits that the minion's job
// began with.
func (s *Store) For(ctx context.Context, minion string) context.Context {
	v, began := s.jobs.of(minion, time.Now())
	if began != "" {
		s.noteAll(ctx, gitpb.NoteJobRequest_USED, minion, began)
	}
	if v == nil {
		return ctx
	}
	return context.WithValue(ctx, viewKey{}, v)
}

// viewFor returns the view for a request.
func (s *Store) viewFor(ctx context.Context) *view {
	if v, ok := ctx.Value(viewKey{}).(*view); ok {
		return v
	}
	return s.view.Load()
}

// names adds the commits of a mirror that the view serves.
func (v *view) names(key string, to map[string]bool) {
	for r, b := range v.by {
		if r.key != key {
			continue
		}
		for _, id := range b.refs {
			to[id] = true
		}
		for _, pin := range b.pins {
			to[pin.Commit] = true
		}
	}
}
