package bench

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
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

// follow shows a line with its time and state periodically until the caller calls stop.
func (p *progress) follow(name string, state func() string) (stop func()) {
	if p.w == nil {
		return func() {}
	}
	start := time.Now()
	end := every(250*time.Millisecond, func() {
		p.show("%s  %.0f s  %s", name, time.Since(start).Seconds(), state())
	})
	return func() { end(); p.clear() }
}

// every calls f periodically until the caller calls stop, which calls it once more.
func every(d time.Duration, f func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() { close(done); <-ended; f() }
}
