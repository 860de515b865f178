package saltlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// patience is how long a caller waits for its line to be written. Usually all are: what a
	// process says before it ends is then not lost.
	patience = time.Second
	// bounds of the lines that wait for one output
	maxLines = 1024
	maxBytes = 4 << 20
)

var errLost = errors.New("the line is lost: too many wait for this output")

// writer writes the lines of one output in a goroutine of its own. A destination may hang (a disk,
// a pipe that nobody reads, a syslog server): then callers wait once for a second, later lines wait
// in a queue, and what does not fit is lost and counted.
type writer struct {
	Output
	lines  chan *line
	bytes  atomic.Int64 // of the lines in the queue
	late   atomic.Bool  // a caller has lost its patience, and the queue was never empty since
	missed atomic.Int64 // lines lost since the last one that was written
	lost   *atomic.Int64
	ended  chan struct{}
}

// line is one line on its way. The writer sets err before it closes done.
type line struct {
	record Record
	text   []byte
	done   chan struct{}
	err    error
}

func startWriter(o Output, lost *atomic.Int64) *writer {
	w := &writer{Output: o, lines: make(chan *line, maxLines), lost: lost, ended: make(chan struct{})}
	go w.run()
	return w
}

// put queues a line; nil: it is lost.
func (w *writer) put(r *Record) *line {
	l := &line{record: *r, text: w.text(r), done: make(chan struct{})}
	if w.bytes.Add(l.size()) <= maxBytes {
		select {
		case w.lines <- l:
			return l
		default:
		}
	}
	w.bytes.Add(-l.size())
	w.lost.Add(1)
	w.missed.Add(1)
	return nil
}

func (l *line) size() int64 { return int64(len(l.text) + len(l.record.Text) + len(l.record.Attrs)) }

// wait returns when the line was written, with the output's error, or when patience ends.
func (w *writer) wait(l *line) error {
	if w.late.Load() {
		return nil
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-l.done:
		return l.err
	case <-limit.C:
		w.late.Store(true)
		return nil
	}
}

// run writes lines until close, and then closes the destination if it can be closed.
func (w *writer) run() {
	defer close(w.ended)
	for l := range w.lines {
		l.err = w.To.Write(&l.record, l.text)
		close(l.done)
		w.bytes.Add(-l.size())
		if len(w.lines) > 0 {
			continue
		}
		w.late.Store(false)
		if n := w.missed.Swap(0); n > 0 { // they came after those in the queue
			w.tell(n)
		}
	}
	if c, ok := w.To.(io.Closer); ok {
		_ = c.Close()
	}
}

// tell says in the output itself that lines are missing.
func (w *writer) tell(missing int64) {
	r := Record{Time: time.Now(), Level: slog.LevelWarn, Component: "log",
		Text:  "lines are missing here: this output took none for a while",
		Attrs: fmt.Sprintf(" n=%d", missing), Fields: []slog.Attr{slog.Int64("n", missing)}}
	_ = w.To.Write(&r, w.text(&r))
}

// text is a record in the output's layout; nil for a sink that reads the record itself.
func (w *writer) text(r *Record) []byte {
	if w.Layout == nil {
		return nil
	}
	return w.Layout.Append(nil, r)
}

// close ends the writer once it has written what waits. It does not wait for a destination that
// hangs. No line may be put any more.
func (w *writer) close() {
	close(w.lines)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-w.ended:
	case <-limit.C:
	}
}

// Losses counts the lines that the outputs of a log have lost; log is one that New's handler makes,
// or any other, which loses none.
func Losses(log *slog.Logger) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "clustermaster_log_lost_lines_total",
		Help: "Lines of the log that were lost because an output (log_file, standard error) took none.",
	}, func() float64 {
		if h, ok := log.Handler().(*Handler); ok {
			return float64(h.outs.lost.Load())
		}
		return 0
	})
}
