// Package seldom bounds log lines that strangers cause: one of a kind per interval, with the number
// of the others.
package seldom

import (
	"sync"
	"time"
)

// Interval is the time between two lines of a kind.
const Interval = 10 * time.Second

// Lines lets one line of a kind through per Interval and counts the others in the next one, so
// that a stranger can't fill the log. Its zero value is ready; it is safe for concurrent use.
type Lines[K comparable] struct {
	// Most bounds how many kinds it knows; 0 if the callers bound them. The others share Rest.
	Most int
	Rest K

	mu   sync.Mutex // guards seen
	seen map[K]*seen
}

type seen struct {
	last    time.Time
	leftOut int
}

// Due returns how many events of a kind the line of this one stands for; 0: write none.
func (s *Lines[K]) Due(kind K) (n int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[kind] == nil && s.Most > 0 && len(s.seen) >= s.Most {
		for k, l := range s.seen {
			if now.Sub(l.last) >= Interval {
				delete(s.seen, k)
			}
		}
		if len(s.seen) >= s.Most {
			kind = s.Rest
		}
	}
	l := s.seen[kind]
	if l == nil {
		if s.seen == nil {
			s.seen = make(map[K]*seen)
		}
		l = new(seen)
		s.seen[kind] = l
	}
	if now.Sub(l.last) < Interval {
		l.leftOut++
		return 0
	}
	n = l.leftOut + 1
	l.last, l.leftOut = now, 0
	return n
}
