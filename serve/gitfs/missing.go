package gitfs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of fetches for pillars whose branch is missing.
const (
	missingEvery = 5 * time.Second        // between two of one remote, on each master, in the long run
	missingBurst = 5                      // of one remote in a row
	missingWait  = 10 * time.Second       // of a pillar
	firstWait    = 30 * time.Second       // of a pillar, if nothing is known of the remote
	untilLed     = 200 * time.Millisecond // between two looks for a leader
)

// errNoBranch means that a remote of git_pillar has neither the branch nor a fallback.
var errNoBranch = fmt.Errorf("no branch: %w", errMissing)

// fetchMissing makes the leader fetch a remote that lacks a branch, as Salt does (checkout of
// salt.utils.gitfs), and waits for it; own reports whether this request made it do so. An error
// means that nothing is known of the remote yet. A remote that can't be fetched is no error, as in
// Salt.
func (s *Store) fetchMissing(ctx context.Context, m *mirror) (own bool, err error) {
	t := s.with.Tables()[m.key]
	if t.Locked {
		return false, nil
	}
	limit := missingWait
	if t.Seq == 0 {
		limit = s.firstWait
	}
	wait := time.NewTimer(limit)
	defer wait.Stop()
	done, own := s.askFor(m, t.Seq == 0)
	select {
	case <-done:
	case <-wait.C:
		if t.Seq == 0 {
			err = errors.New("its first fetch has not ended yet; ask again")
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	return own, err
}

// askFor asks the leader for a fetch; done is closed when that has ended. While one is under way
// and when there were many, done is the last one's and own is false. Without a leader a first fetch
// waits for one.
func (s *Store) askFor(m *mirror, first bool) (done chan struct{}, own bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.asked != nil {
		select {
		case <-m.asked:
		default:
			s.missing.WithLabelValues("waited").Inc()
			return m.asked, false
		}
		if m.spent.After(now.Add((missingBurst - 1) * missingEvery)) {
			s.missing.WithLabelValues("limited").Inc()
			return m.asked, false
		}
	}
	if m.spent.Before(now) {
		m.spent = now
	}
	s.missing.WithLabelValues("fetched").Inc()
	m.spent = m.spent.Add(missingEvery)
	done = make(chan struct{})
	m.asked = done
	s.asking.Go(func() {
		defer close(done)
		for first && !s.led() {
			select {
			case <-time.After(untilLed):
			case <-s.life.Done():
				return
			}
		}
		if _, err := s.Update(s.life, []string{m.key}); err != nil {
			s.log.Warn("the leader does not fetch for a missing branch", "remote", m.remote.Label(), "err", err)
		}
		if !s.adopt() && m.working.enter(s.life) == nil {
			defer m.working.leave()
			s.catchUp(s.life, m) // the leader waits for a majority only
		}
	})
	return done, true
}

// led reports whether the cluster has a leader.
func (s *Store) led() bool {
	_, ok := s.with.Leader()
	return ok || s.with.Leading()
}
