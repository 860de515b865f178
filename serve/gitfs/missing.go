package gitfs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of fetches for pillars whose branch is missing.
const (
	missingEvery = 5 * time.Second  // between two of one remote, on each master, in the long run
	missingBurst = 5                // of one remote in a row
	missingWait  = 10 * time.Second // of a pillar
	firstWait    = 30 * time.Second // of a pillar, if nothing is known of the remote
)

// errNoBranch means that a remote of git_pillar has neither the branch nor a fallback.
var errNoBranch = fmt.Errorf("no branch: %w", errMissing)

// asked is a fetch that the leader was asked for.
type asked struct {
	done chan struct{} // closed when it has ended; then err is set
	err  error         // the leader could not be asked
}

// fetchMissing makes the leader fetch a remote that lacks a branch, as Salt does (checkout of
// salt.utils.gitfs), and waits for it; own reports whether this request made it do so. An error
// means that nothing is known of the remote yet. A remote that can't be fetched is no error, as in
// Salt.
func (s *Store) fetchMissing(ctx context.Context, m *mirror) (own bool, err error) {
	t := s.with.Tables()[m.key]
	if t.Locked {
		return false, nil
	}
	a, own := s.askFor(m)
	limit := missingWait
	if t.Seq == 0 {
		limit = firstWait
	}
	wait := time.NewTimer(limit)
	defer wait.Stop()
	select {
	case <-a.done:
		err = a.err
	case <-wait.C:
		err = errors.New("its first fetch has not ended yet; ask again")
	case <-ctx.Done():
		return own, ctx.Err()
	}
	if t.Seq > 0 {
		err = nil
	}
	return own, err
}

// askFor asks the leader for a fetch. It returns the last one, which is not its own, while that is
// under way and when there were many.
func (s *Store) askFor(m *mirror) (a *asked, own bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if a = m.asked; a != nil {
		select {
		case <-a.done:
		default:
			s.missing.WithLabelValues("waited").Inc()
			return a, false
		}
		if m.spent.After(now.Add((missingBurst - 1) * missingEvery)) {
			s.missing.WithLabelValues("limited").Inc()
			return a, false
		}
	}
	if m.spent.Before(now) {
		m.spent = now
	}
	s.missing.WithLabelValues("fetched").Inc()
	m.spent = m.spent.Add(missingEvery)
	a = &asked{done: make(chan struct{})}
	m.asked = a
	s.asking.Go(func() {
		defer close(a.done)
		_, a.err = s.Update(s.life, []string{m.key})
		if !s.adopt() {
			s.catchUp(s.life) // the leader waits for a majority only
		}
	})
	return a, true
}
