package statesync

import (
	"sync"
	"time"
)

// Progress is the progress of one master's task at one moment.
type Progress struct {
	Bytes, BytesTotal int64 // BytesTotal 0: not known yet
	Items, ItemsTotal int64 // contents fetched
	Rate              int64 // bytes per second since the totals were known
}

// ETA returns how long the rest takes at this rate; 0 if unknown.
func (p Progress) ETA() time.Duration {
	if p.Rate <= 0 || p.BytesTotal <= p.Bytes {
		return 0
	}
	return time.Duration(float64(p.BytesTotal-p.Bytes) / float64(p.Rate) * float64(time.Second))
}

// progress counts while a task runs. A nil one counts nothing. Safe for concurrent use.
type progress struct {
	mu    sync.Mutex // guards all below
	began time.Time  // when the totals were known
	now   Progress
}

func (p *progress) setTotals(bytes, items int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = time.Now()
	p.now = Progress{BytesTotal: bytes, ItemsTotal: items}
}

func (p *progress) add(bytes, items int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.BytesTotal == 0 && p.now.ItemsTotal == 0 {
		return // the manifest itself
	}
	p.now.Bytes += bytes
	p.now.Items += items
}

func (p *progress) snapshot() Progress {
	if p == nil {
		return Progress{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now
	if took := time.Since(p.began).Seconds(); now.Bytes > 0 && took > 0 {
		now.Rate = int64(float64(now.Bytes) / took)
	}
	return now
}
