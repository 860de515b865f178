package master

import "sync"

// maxSignedIn bounds the memory of signed-in ids.
const maxSignedIn = 1 << 20

// signedIn is the default Presence: the ids that signed in here since the start.
type signedIn struct {
	mu  sync.RWMutex
	ids map[string]struct{}
}

func newSignedIn() *signedIn { return &signedIn{ids: make(map[string]struct{})} }

func (s *signedIn) add(id string) {
	s.mu.RLock()
	_, is := s.ids[id]
	s.mu.RUnlock()
	if is {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) < maxSignedIn {
		s.ids[id] = struct{}{}
	}
}

// Connected implements Presence.
func (s *signedIn) Connected(id string) (count int, is bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, is = s.ids[id]
	return len(s.ids), is
}
