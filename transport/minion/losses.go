package minion

import (
	"sync"
	"time"
)

const (
	lossWindow = 2 * time.Second  // a loss: half of the subscribers went within it
	lossMemory = 30 * time.Second // how long a loss is remembered
)

// losses remembers when many subscribers went at once: a balancer gave this master
// up, or the network did, or this is a new process and they were another's.
type losses struct {
	mu     sync.Mutex  // guards gone, record
	gone   []time.Time // departures within lossWindow, oldest first
	record []time.Time // losses within lossMemory, oldest first
}

// left notes that a subscriber went at now and left `remaining` others; it reports
// whether that made a loss. Departures within lossWindow of a loss belong to it.
func (l *losses) left(now time.Time, remaining int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	l.gone = append(l.gone, now)
	n := len(l.gone)
	return n >= 2 && 2*n >= remaining+n && l.note(now)
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
