package gitfs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of the leader's work.
const (
	parallelFetches = 4 // from remotes, and as many from other masters
	parallelRetries = 2 // of these, from remotes that hung
	hangsAfter      = 10 * time.Second
	tidyEvery       = time.Hour
	retryBehind     = time.Second // for a master that lacks agreed commits
)

// Run fetches while this master leads, catches up while it does not, and cleans up, until ctx ends.
// A mirror that is still being worked on, because a git server hangs for example, holds up no
// other.
func (s *Store) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	tick := time.NewTicker(s.opts.Tick)
	defer tick.Stop()
	dropped := time.Now()
	for {
		s.adopt()
		tables := s.with.Tables()
		for _, key := range s.keys {
			m := s.mirrors[key]
			m.rest(time.Now().Add(-idleReader))
			if m.working.try() {
				work.Go(func() {
					defer m.working.leave()
					s.attend(ctx, m, tables[key])
				})
			}
		}
		s.jobs.expire(time.Now())
		if time.Since(dropped) > tidyEvery {
			dropped = time.Now()
			s.dropContents(dropped.Add(-contentAge))
		}
		select {
		case <-tick.C:
		case <-s.kick:
		case <-ctx.Done():
			return nil
		}
	}
}

// places bound how much is done at a time.
type places chan struct{}

func (p places) enter(ctx context.Context) error {
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try enters if there is a place.
func (p places) try() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p places) leave() { <-p }

// attend does what one mirror needs now. The caller has the place m.working.
func (s *Store) attend(ctx context.Context, m *mirror, t Table) {
	if s.Behind() && time.Since(m.behind) > retryBehind && len(m.lacks(t.commits())) > 0 {
		m.behind = time.Now()
		s.catchUp(ctx, m)
	}
	s.mend(ctx, m, time.Now())
	if s.with.Leading() && s.due(m, t, time.Now()) {
		s.refresh(ctx, m, s.with.Leading)
	}
	if time.Since(m.tidied) > tidyEvery && s.tidying.try() {
		defer s.tidying.leave()
		m.tidied = time.Now()
		s.tidy(ctx, m)
	}
}

// due reports whether the interval of a mirror has passed.
func (s *Store) due(m *mirror, t Table, now time.Time) bool {
	m.mu.Lock()
	last := m.fetched.At
	m.mu.Unlock()
	return !t.Locked && now.Sub(last) >= s.interval(m.key)
}

// interval is the shortest update_interval of the remotes of a mirror.
func (s *Store) interval(key string) time.Duration {
	shortest := time.Duration(0)
	for _, r := range s.remotesOf(key) {
		if shortest == 0 || r.Interval < shortest {
			shortest = r.Interval
		}
	}
	return shortest
}

// remotesOf lists the remotes of both roles that share a mirror.
func (s *Store) remotesOf(key string) []*Remote {
	var out []*Remote
	for _, r := range s.Remotes() {
		if r.key == key {
			out = append(out, r)
		}
	}
	return out
}

// Remotes lists all remotes in force: those of gitfs, then those of git_pillar.
func (s *Store) Remotes() []*Remote {
	out := slices.Clone(s.files)
	for _, g := range s.pillars {
		out = append(out, g.remotes...)
	}
	return out
}

// Outcome is the result of fetching one mirror.
type Outcome struct {
	Changed bool
	Err     error
}

// round fetches mirrors and publishes new commits.
func (s *Store) round(ctx context.Context, keys []string) map[string]Outcome {
	var (
		out = make(map[string]Outcome)
		mu  sync.Mutex // guards out
		wg  sync.WaitGroup
	)
	for _, key := range keys {
		wg.Go(func() {
			m, o := s.mirrors[key], Outcome{}
			if o.Err = m.working.enter(ctx); o.Err == nil {
				defer m.working.leave()
				o = s.refresh(ctx, m, func() bool { return true })
			}
			mu.Lock()
			defer mu.Unlock()
			out[key] = o
		})
	}
	wg.Wait()
	return out
}

// refresh fetches a mirror and publishes new commits, if that is still wanted in its turn, which
// may come late. The caller has the place m.working.
func (s *Store) refresh(ctx context.Context, m *mirror, wanted func() bool) (o Outcome) {
	o.Err = s.inTurn(ctx, m, func() (err error) {
		if !wanted() {
			return nil
		}
		o.Changed, err = s.update(ctx, m)
		return err
	})
	if o.Changed {
		s.announce(m.key)
	}
	return o
}

// inTurn does a fetch once there is a place for it. Remotes that hung have few places, so that a
// git server that hangs leaves some to the others. The caller has the place m.working.
func (s *Store) inTurn(ctx context.Context, m *mirror, fetch func() error) error {
	if m.hung {
		if err := s.retrying.enter(ctx); err != nil {
			return err
		}
		defer s.retrying.leave()
	}
	if err := s.fetching.enter(ctx); err != nil {
		return err
	}
	defer s.fetching.leave()
	began := time.Now()
	err := fetch()
	switch {
	case err == nil:
		m.hung = false
	case ctx.Err() == nil && time.Since(began) > hangsAfter:
		m.hung = true
	}
	return err
}

// announce calls Options.Changed if files come from a mirror that changed.
func (s *Store) announce(key string) {
	if slices.ContainsFunc(s.files, func(r *Remote) bool { return r.key == key }) {
		s.opts.Changed()
	}
}

// update fetches one mirror, makes a majority store the new commits, and publishes them.
func (s *Store) update(ctx context.Context, m *mirror) (changed bool, err error) {
	if s.with.Tables()[m.key].Locked {
		err := errors.New("it is locked against fetches; unlock it with salt-run fileserver.clear_lock")
		s.log.Warn("remote not fetched", "remote", m.remote.Label(), "err", err)
		return false, err
	}
	began := time.Now()
	refs, refused, err := s.fetched(ctx, m)
	if err == nil {
		changed, err = s.publish(ctx, m, refs)
	}
	if ctx.Err() != nil {
		return changed, ctx.Err()
	}
	m.mu.Lock()
	was := m.fetched
	m.fetched.At, m.fetched.Refused = time.Now(), refused
	if err == nil {
		m.fetched.Good, m.fetched.Took = m.fetched.At, time.Since(began)
		m.fetched.Error, m.fetched.Failed = "", 0
	} else {
		m.fetched.Error = err.Error()
		m.fetched.Failed++
	}
	m.mu.Unlock()
	switch {
	case err == nil:
		s.fetches.Inc()
		if was.Error != "" {
			s.log.Info("remote is fetched again", "remote", m.remote.Label())
		}
	default:
		s.failures.Inc()
		if was.Error != err.Error() { // once, not at each interval
			s.log.Error(fmt.Sprintf("%s remote %s can't be updated: %v; the last agreed commits stay in use",
				m.remote.Role, m.remote.Label(), err))
		}
	}
	if refused != "" && refused != was.Refused {
		s.log.Error(fmt.Sprintf("%s remote %s: option git_allowed_signers: %s", m.remote.Role,
			m.remote.Label(), refused))
	}
	return changed, err
}

// fetched fetches and returns the remote's refs, without those that must not be served.
func (s *Store) fetched(ctx context.Context, m *mirror) (refs Refs, refused string, err error) {
	if err := s.opts.Low(); err != nil {
		return nil, "", err
	}
	if refs, err = m.fetch(ctx, m.remote); err != nil {
		return nil, "", err
	}
	if s.opts.Signers != "" {
		refused = s.signed(ctx, m, refs)
	}
	return refs, refused, m.judge(ctx, m.complete(ctx, refs.tips()))
}

// publish makes refs the ones that all masters serve.
func (s *Store) publish(ctx context.Context, m *mirror, refs Refs) (changed bool, err error) {
	for range 3 {
		t := s.with.Tables()[m.key]
		put, drop := difference(t.Refs, refs)
		if t.Seq > 0 && len(put)+len(drop) == 0 {
			return false, nil
		}
		if err := s.spread(ctx, m, put.tips()); err != nil {
			return false, err
		}
		err = s.with.Publish(ctx, m.key, t.Seq+1, put, drop)
		if err == nil {
			s.requests.Inc()
			s.adopt()
			s.log.Info("git remote has new commits", "remote", m.remote.Label(), "seq", t.Seq+1,
				"changed", len(put), "gone", len(drop))
			return true, nil
		}
		if !errors.Is(err, ErrStale) {
			return false, fmt.Errorf("publish commits: %w", err)
		}
		if err := s.with.Refresh(ctx); err != nil {
			return false, err
		}
	}
	return false, err
}

// difference returns the changes from one table of refs to another.
func difference(from, to Refs) (put Refs, drop []string) {
	put = make(Refs)
	for name, id := range to {
		if from[name] != id {
			put[name] = id
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[name]; !ok {
			drop = append(drop, name)
		}
	}
	return put, drop
}

// signed removes refs whose commit is not signed by an allowed signer, and returns them; a served
// ref stays at its earlier commit.
func (s *Store) signed(ctx context.Context, m *mirror, refs Refs) (refused string) {
	now := s.with.Tables()[m.key].Refs
	var names []string
	good := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		id := refs[name]
		if now[name] == id {
			continue
		}
		ok, known := good[id]
		if !known {
			_, err := m.git.do(ctx, run{
				dir: m.dir, args: []string{"verify-commit", id},
				conf: [][2]string{
					{"gpg.ssh.allowedSignersFile", s.opts.Signers}, {"gpg.program", "/bin/false"},
					{"gpg.openpgp.program", "/bin/false"}, {"gpg.x509.program", "/bin/false"},
				},
			})
			ok = err == nil
			good[id] = ok
		}
		if ok {
			continue
		}
		names = append(names, strings.TrimPrefix(strings.TrimPrefix(name, "refs/remotes/origin/"),
			"refs/tags/")+" at "+id[:12])
		if was, served := now[name]; served {
			refs[name] = was
		} else {
			delete(refs, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	more := ""
	if len(names) > 5 {
		more, names = fmt.Sprintf(" and %d more", len(names)-5), names[:5]
	}
	return "no allowed signer has signed " + strings.Join(names, ", ") + more +
		"; the former commits are served on"
}

// holding counts the masters that store commits, to tell when enough of them do.
type holding struct {
	reachable, holders int
	voters             []string // nodes
	votes              int      // of the holders
}

func (h *holding) add(node string) {
	h.holders++
	if slices.Contains(h.voters, node) {
		h.votes++
	}
}

// enough reports whether a majority of the reachable masters holds the commits, and a majority of
// all voters: whatever masters die, a cluster with a quorum has them.
func (h *holding) enough() bool {
	return h.holders > h.reachable/2 && h.votes > len(h.voters)/2
}

// spread makes enough masters store commits.
func (s *Store) spread(ctx context.Context, m *mirror, commits []string) error {
	if s.peers == nil || len(commits) == 0 {
		return nil
	}
	self := s.peers.Self()
	h := holding{reachable: 1, voters: s.with.Voters()}
	h.add(self)
	type answer struct {
		node string
		err  error
	}
	answers := make(chan answer)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, node := range s.peers.Members() {
		if node == self || !s.peers.Alive(node) {
			continue
		}
		h.reachable++
		go func() {
			err := s.hold(ctx, node, m.key, commits)
			select {
			case answers <- answer{node, err}:
			case <-ctx.Done():
			}
		}()
	}
	var failed []error
	for !h.enough() {
		if h.holders+len(failed) >= h.reachable {
			return fmt.Errorf("%d of %d reachable masters hold the commits, %d of %d voters; no "+
				"majority: %w", h.holders, h.reachable, h.votes, len(h.voters), errors.Join(failed...))
		}
		select {
		case a := <-answers:
			if a.err == nil {
				h.add(a.node)
			} else {
				failed = append(failed, a.err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// tidy removes commits that are no longer referenced from a mirror.
func (s *Store) tidy(ctx context.Context, m *mirror) {
	t := s.with.Tables()[m.key]
	if t.Seq == 0 {
		return
	}
	named := make(map[string]bool)
	for _, id := range t.Refs {
		named[id] = true
	}
	m.mu.Lock()
	for _, id := range m.served {
		named[id] = true
	}
	m.mu.Unlock()
	for _, ids := range t.Before {
		for _, id := range ids {
			named[id] = true
		}
	}
	for _, pin := range t.Pins {
		named[pin.Commit] = true
	}
	for _, v := range s.jobs.known() {
		v.names(m.key, named)
	}
	if err := m.tidy(ctx, named); err != nil && ctx.Err() == nil {
		s.log.Warn("mirror not cleaned up; trying again later", "remote", m.remote.Label(),
			"err", err)
	}
}
