package bench

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"clustermaster/tools/figure"
)

// progress shows what runs: on a terminal as one line that is rewritten, elsewhere not at all.
type progress struct{ w io.Writer } // nil: not a terminal

func newProgress(w io.Writer) *progress {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progress{w}
	}
	return new(progress)
}

// show replaces the line.
func (p *progress) show(format string, args ...any) {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r\033[K"+format, args...)
	}
}

// clear removes the line, before other output.
func (p *progress) clear() { p.show("") }

// follow shows a line with its time periodically until the caller calls the returned function.
func (p *progress) follow(name string, state func(since time.Duration) string) (stop func()) {
	if p.w == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for start := time.Now(); ; {
			select {
			case <-done:
				p.clear()
				return
			case now := <-tick.C:
				since := now.Sub(start)
				p.show("%s  %.0f s  %s", name, since.Seconds(), state(since))
			}
		}
	}()
	return func() { close(done); <-ended }
}

// watch shows the progress of a meter until the caller calls stop.
func (p *progress) watch(name string, m *meter) (stop func()) {
	var last uint64
	var at time.Duration
	return p.follow(name, func(since time.Duration) string {
		n := m.answered.Load()
		rate := float64(n-last) / (since - at).Seconds()
		last, at = n, since
		return fmt.Sprintf("%s/s  %d answers  %d failed", figure.Number(rate), n, m.failed.Load())
	})
}
