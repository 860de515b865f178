package master

import (
	"maps"
	"sync"
	"time"
)

const (
	// maxSignedIn bounds the memory of signed-in ids.
	maxSignedIn = 1 << 20
	// presentFor is how long a minion counts that is not heard. Its AES key changes each day, by
	// default, and then it signs in again.
	presentFor = 25 * time.Hour
	pruneEvery = time.Second
)

// signedIn is the default Presence: the ids that signed in here since the start, without those that
// have gone.
type signedIn struct {
	gone func(id string) bool
	now  func() time.Time

	mu     sync.Mutex // guards the rest
	ids    map[string]struct{}
	pruned time.Time
}

func newSignedIn(gone func(id string) bool, now func() time.Time) *signedIn {
	return &signedIn{gone: gone, now: now, ids: make(map[string]struct{})}
}

func (s *signedIn) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) < maxSignedIn {
		s.ids[id] = struct{}{}
	}
}

// Connected implements Presence.
func (s *signedIn) Connected(id string) (count int, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.pruned) >= pruneEvery {
		maps.DeleteFunc(s.ids, func(id string, _ struct{}) bool { return s.gone(id) })
		s.pruned = now
	}
	_, is = s.ids[id]
	return len(s.ids), is
}
