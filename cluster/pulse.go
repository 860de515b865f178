package cluster

import "sync"

// pulse wakes loops before their next timed look. A loop takes next before it looks at anything, so
// that no beat is lost between the look and the wait. The zero value is ready.
type pulse struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

// next returns a channel that the next beat closes.
func (p *pulse) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ch == nil {
		p.ch = make(chan struct{})
	}
	return p.ch
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ch != nil {
		close(p.ch)
		p.ch = nil
	}
}
