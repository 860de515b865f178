package bench

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"clustermaster/tools/figure"
)

// progress shows what runs: on a terminal one line that is written over again and again,
// elsewhere nothing.
type progress struct {
	w io.Writer // nil: not a terminal

	mu   sync.Mutex // guards what w shows
	line bool       // a line stands there
}

func newProgress(w io.Writer) *progress {
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return &progress{w: w}
		}
	}
	return new(progress)
}

// show replaces the line.
func (p *progress) show(format string, args ...any) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = true
	fmt.Fprintf(p.w, "\r\033[K"+format, args...)
}

// clear removes the line, before other output.
func (p *progress) clear() {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line {
		fmt.Fprint(p.w, "\r\033[K")
		p.line = false
	}
}

// follow shows how a count comes nearer to its end until the returned function is called.
func (p *progress) follow(name string, of int, count func() int) (stop func()) {
	return p.tick(func(since time.Duration) {
		p.show("%s  %.0f s  %d of %d", name, since.Seconds(),
			count(), of)
	})
}

// tick calls f again and again until the returned function is called; on no terminal, never.
func (p *progress) tick(f func(since time.Duration)) (stop func()) {
	if p.w == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		start := time.Now()
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				p.clear()
				return
			case now := <-tick.C:
				f(now.Sub(start))
			}
		}
	}()
	return func() { close(done); <-ended }
}

// watch shows how a meter moves until the returned function is called.
func (p *progress) watch(name string, m *meter, of time.Duration) (stop func()) {
	var last uint64
	var at time.Duration
	limit := ""
	if of > 0 {
		limit = fmt.Sprintf(" of %.0f", of.Seconds())
	}
	return p.tick(func(since time.Duration) {
		n := m.answered.Load()
		rate := float64(n-last) / (since - at).Seconds()
		last, at = n, since
		p.show("%s  %.0f%s s  %s/s  %d answers  %d failed", name, since.Seconds(), limit,
			figure.Number(rate), n, m.failed.Load())
	})
}
