package localbus

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueuedBytes bounds the queue of one listener, besides the number of events.
const maxQueuedBytes = 64 << 20

// listener is one connection to the publishing socket.
type listener struct {
	s     *Server
	conn  *net.UnixConn
	pid   int32 // of the process at the other end
	since time.Time
	sent  atomic.Bool // something was written

	mu    sync.Mutex // guards the fields below
	queue [][]byte
	bytes int
	full  bool // the queue overflowed; the connection ends

	wake chan struct{}
}

func newListener(s *Server, conn *net.UnixConn, pid int32) *listener {
	return &listener{s: s, conn: conn, pid: pid, since: time.Now(), wake: make(chan struct{}, 1)}
}

// offer queues a frame and never blocks. A frame that does not fit ends the connection, even while
// a write is waiting for the other end.
func (l *listener) offer(frame []byte) {
	l.mu.Lock()
	if l.full = l.full || len(l.queue) >= l.s.opts.Queue ||
		l.bytes+len(frame) > maxQueuedBytes; l.full {
		l.queue, l.bytes = nil, 0
		l.conn.Close()
	} else {
		l.queue = append(l.queue, frame)
		l.bytes += len(frame)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (l *listener) take() (frames [][]byte, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames, l.queue, l.bytes = l.queue, nil, 0
	return frames, l.full
}

var errSlow = errors.New("it reads too slowly")

// serve writes the queued frames until the other end leaves or reads too slowly, or the connection
// is closed.
func (l *listener) serve() error {
	cut := lengthBytes
	if framingOf(l.pid) == prefixed {
		cut = 0
	}
	left := make(chan struct{})
	go func() { // listeners send nothing: the read ends when they leave
		defer close(left)
		var b [1]byte
		for {
			if _, err := l.conn.Read(b[:]); err != nil {
				return
			}
		}
	}()
	defer func() {
		l.conn.Close()
		<-left
	}()
	for {
		frames, full := l.take()
		if full {
			return errSlow
		}
		if len(frames) == 0 {
			select {
			case <-l.wake:
				continue
			case <-left:
				return nil
			}
		}
		parts := make(net.Buffers, len(frames))
		for i, f := range frames {
			parts[i] = f[cut:]
		}
		// fails only on a closed connection, as the write then does
		_ = l.conn.SetWriteDeadline(time.Now().Add(l.s.opts.WriteTimeout))
		_, err := parts.WriteTo(l.conn)
		l.sent.Store(true)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errSlow
		}
		if err != nil {
			if _, full := l.take(); full {
				return errSlow
			}
			return nil // the other end has left
		}
		l.s.metrics.told.Add(float64(len(frames)))
	}
}
