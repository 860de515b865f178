package gitfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// mendAgain is the time between attempts to make a damaged mirror anew.
const mendAgain = 15 * time.Second

// attempt is the last one to make a damaged mirror anew; error is "" if it succeeded.
type attempt struct {
	at    time.Time
	error string
}

// mend makes a mirror anew that is damaged, or that somebody has removed. Until the new one is
// complete, the damaged one serves what it can. The caller has the place m.working.
func (s *Store) mend(ctx context.Context, m *mirror, now time.Time) {
	last := m.mending
	if m.removed() {
		m.broken.Store(true)
	}
	if !m.broken.Load() || now.Sub(last.at) < mendAgain {
		return
	}
	if last.error == "" {
		s.log.Error("a git mirror is damaged, and is fetched anew; check the disk",
			"remote", m.remote.Label(), "folder", m.dir)
	}
	err := s.remake(ctx, m)
	switch {
	case err == nil:
		m.mending = attempt{at: now}
		s.log.Info("the git mirror is whole again", "remote", m.remote.Label())
		s.adopt()
	case ctx.Err() == nil:
		m.mending = attempt{now, err.Error()}
		if err.Error() != last.error {
			s.log.Error("the damaged git mirror can't be fetched anew; trying again",
				"remote", m.remote.Label(), "err", err)
		}
	}
}

// remake fills a new mirror, which then takes the place of a damaged one.
func (s *Store) remake(ctx context.Context, m *mirror) error {
	dir := filepath.Join(s.opts.Dir, "mending", m.key)
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what an earlier attempt left: %w", err)
	}
	if err := s.git.prepare(); err != nil {
		return err
	}
	if err := s.gathering.enter(ctx); err != nil {
		return err
	}
	fresh, err := openMirror(ctx, s.git, s.caches, dir, m.remote)
	s.gathering.leave()
	if err != nil {
		return err
	}
	defer fresh.restAll()
	var t Table
	for first := true; first || s.with.Tables()[m.key].Seq != t.Seq; first = false {
		t = s.with.Tables()[m.key]
		if err := s.refill(ctx, m, fresh, t); err != nil {
			return err
		}
	}
	m.pinning.Lock()
	defer m.pinning.Unlock()
	fresh.completeMost(ctx, m.haves())
	if t.Seq > 0 && len(fresh.lacks(t.Refs.tips())) == 0 {
		s.serve(fresh, t)
	}
	if err := m.replace(ctx, fresh, filepath.Join(dir, "damaged")); err != nil {
		return err
	}
	s.jobs.drop(func(v *view) bool {
		named := make(map[string]bool)
		v.names(m.key, named)
		return len(m.lacks(sorted(named))) > 0
	})
	return nil
}

// refill fetches what a master must have: from the other masters, else, if this one leads, from the
// remote. If the remote no longer has it, the next round publishes what it has instead.
func (s *Store) refill(ctx context.Context, m, fresh *mirror, t Table) error {
	want := t.commits()
	err := s.gather(ctx, fresh, want)
	if len(fresh.lacks(want)) == 0 {
		return nil
	}
	if !s.with.Leading() {
		if err == nil {
			err = errors.New("no other master can be reached")
		}
		return err
	}
	if err := s.opts.Low(); err != nil {
		return err
	}
	if err := s.inTurn(ctx, m, func() error {
		_, err := fresh.fetch(ctx, m.remote)
		return err
	}); err != nil {
		return err
	}
	if err := fresh.complete(ctx, want); err != nil && t.Locked {
		return err
	}
	return nil
}

// commits lists what a master must have: the commits of refs and pins.
func (t Table) commits() []string {
	out := t.Refs.tips()
	for _, pin := range t.Pins {
		out = append(out, pin.Commit)
	}
	return out
}

// gather fetches missing commits from the masters that have them. Without another master it does
// nothing.
func (s *Store) gather(ctx context.Context, m *mirror, commits []string) error {
	if s.peers == nil || len(m.lacks(commits)) == 0 {
		return nil
	}
	if err := s.gathering.enter(ctx); err != nil {
		return err
	}
	defer s.gathering.leave()
	var last error
	for _, node := range s.peers.Members() {
		if node == s.peers.Self() || !s.peers.Alive(node) {
			continue
		}
		if last = s.take(ctx, m, node, commits); last == nil {
			break
		}
	}
	return last
}

// completeMost keeps those of the commits that are complete here.
func (m *mirror) completeMost(ctx context.Context, commits []string) {
	if m.complete(ctx, commits) == nil {
		return
	}
	for _, id := range commits {
		_ = m.complete(ctx, []string{id})
	}
}

// replace puts a fresh mirror in the place of the damaged one, which goes to the folder aside.
func (m *mirror) replace(ctx context.Context, fresh *mirror, aside string) error {
	m.fetching.Lock()
	defer m.fetching.Unlock()
	for range maxReaders { // until nobody reads an object
		select {
		case m.readers.slots <- struct{}{}:
			defer func() { <-m.readers.slots }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.restAll()
	if err := os.MkdirAll(filepath.Dir(m.dir), 0o700); err != nil {
		return fmt.Errorf("make folder of mirrors: %w", err)
	}
	if err := os.Rename(m.dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put damaged mirror aside: %w", err)
	}
	if err := os.Rename(fresh.dir, m.dir); err != nil {
		return fmt.Errorf("put new mirror in place: %w", err)
	}
	m.broken.Store(false)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.served, m.seq = fresh.held, fresh.served, fresh.seq
	m.fetched.At = time.Time{} // due at once
	return nil
}
