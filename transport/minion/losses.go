package minion

import (
	"sync"
	"time"
)

const (
	lossWindow = 2 * time.Second  // a loss: half of the subscribers left within it
	lossMemory = 30 * time.Second // how long a loss is remembered

	// Strangers can cause losses too, if many subscribe for long enough. Jobs are sent again for at
	// most lossesAtMost of them within lossPeriod; no balancer fails more often.
	lossesAtMost = 5
	lossPeriod   = 10 * time.Minute
)

// losses remembers when many subscribers left at once: because a balancer gave this master up, or
// the network failed, or this is a new process and they were connected to the previous one.
type losses struct {
	mu     sync.Mutex  // guards all below
	gone   []time.Time // departures within lossWindow, oldest first
	record []time.Time // losses within lossMemory, oldest first
	seen   []time.Time // losses noticed here within lossPeriod, oldest first
	over   time.Time   // the last loss beyond lossesAtMost
}

// departure is the effect of a subscriber's leaving.
type departure int

const (
	alone   departure = iota // alone, or part of a known loss
	loss                     // it makes a new loss
	ignored                  // it would, but lossesAtMost is reached
)

// left notes that a subscriber left at now and that `remaining` others stay. Departures within
// lossWindow of a loss belong to it.
func (l *losses) left(now time.Time, remaining int) departure {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	l.gone = append(l.gone, now)
	n := len(l.gone)
	if n < 2 || n < remaining {
		return alone
	}
	if len(l.seen) >= lossesAtMost {
		if now.Sub(l.over) < lossWindow || now.Sub(l.seen[len(l.seen)-1]) < lossWindow {
			return alone
		}
		l.over = now
		return ignored
	}
	if !l.note(now) {
		return alone
	}
	l.seen = append(l.seen, now)
	return loss
}

// elsewhere notes a loss that another process noticed.
func (l *losses) elsewhere(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	l.note(now)
}

// note adds a loss unless it belongs to the last one. The caller holds mu.
func (l *losses) note(now time.Time) bool {
	if k := len(l.record); k > 0 && now.Sub(l.record[k-1]) < lossWindow {
		return false
	}
	l.record = append(l.record, now)
	return true
}

func (l *losses) times(now time.Time) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	return append([]time.Time(nil), l.record...)
}

func (l *losses) forget(now time.Time) {
	l.gone = dropBefore(l.gone, now.Add(-lossWindow))
	l.record = dropBefore(l.record, now.Add(-lossMemory))
	l.seen = dropBefore(l.seen, now.Add(-lossPeriod))
}

func dropBefore(times []time.Time, limit time.Time) []time.Time {
	i := 0
	for i < len(times) && times[i].Before(limit) {
		i++
	}
	if i == 0 {
		return times
	}
	return append(times[:0], times[i:]...)
}
