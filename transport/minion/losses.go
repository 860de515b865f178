package minion

import (
	"sync"
	"time"
)

const (
	lossWindow = 2 * time.Second  // a loss: half of the subscribers went within it
	lossMemory = 30 * time.Second // how long a loss is remembered

	// Strangers can make losses too, by subscribing for long enough and in numbers. Jobs are sent
	// again for at most lossesAtMost of them within lossPeriod; no balancer fails more often.
	lossesAtMost = 5
	lossPeriod   = 10 * time.Minute
)

// losses remembers when many subscribers went at once: a balancer gave this master
// up, or the network did, or this is a new process and they were another's.
type losses struct {
	mu     sync.Mutex  // guards all below
	gone   []time.Time // departures within lossWindow, oldest first
	record []time.Time // losses within lossMemory, oldest first
	seen   []time.Time // losses that were seen here within lossPeriod, oldest first
	over   time.Time   // the last loss beyond lossesAtMost
}

// departure is what the going of a subscriber means.
type departure int

const (
	alone   departure = iota // or one of a loss that is known
	loss                     // it makes a loss
	ignored                  // it would, but there were lossesAtMost
)

// left notes that a subscriber went at now and left `remaining` others. Departures within
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

// elsewhere notes a loss that was not seen here.
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
