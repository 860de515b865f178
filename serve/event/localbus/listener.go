package localbus

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxQueuedBytes bounds the queue of one listener, besides the number of events.
	maxQueuedBytes = 64 << 20
	// maxWrite and maxWriteBytes bound one write, in frames and bytes; one frame may be larger.
	// Frames count as queued until their write ends.
	maxWrite      = 64
	maxWriteBytes = 256 << 10
	// lastTry is how long a listener that seems to read nothing gets once more. The kernel reports
	// room for a write only when most of its buffer is empty, but a new write finds any.
	lastTry = time.Second
)

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

// first returns the frames of the next write. They stay in the queue.
func (l *listener) first() (frames [][]byte, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for ; n < min(len(l.queue), maxWrite); n++ {
		if size += len(l.queue[n]); n > 0 && size > maxWriteBytes {
			break
		}
	}
	return l.queue[:n], l.full
}

// written removes the first n frames from the queue.
func (l *listener) written(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return
	}
	for i, f := range l.queue[:n] {
		l.bytes -= len(f)
		l.queue[i] = nil
	}
	l.queue = l.queue[n:]
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
		frames, full := l.first()
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
		err := l.write(parts)
		if _, full := l.first(); full || errors.Is(err, os.ErrDeadlineExceeded) {
			return errSlow
		}
		if err != nil {
			return nil // the other end has left
		}
		l.written(len(frames))
		l.s.metrics.told.Add(float64(len(frames)))
	}
}

// write writes parts. It gives up when the other end has read nothing for the time that it has.
func (l *listener) write(parts net.Buffers) error {
	patience := l.s.opts.WriteTimeout
	for {
		// fails only on a closed connection, as the write then does
		_ = l.conn.SetWriteDeadline(time.Now().Add(patience))
		n, err := parts.WriteTo(l.conn)
		l.sent.Store(true)
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 && patience == lastTry:
			return err
		case n > 0:
			patience = l.s.opts.WriteTimeout
		default:
			patience = lastTry
		}
	}
}
