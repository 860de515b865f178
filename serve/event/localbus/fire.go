package localbus

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// restTimeout is how long the rest of a frame may take.
const restTimeout = 30 * time.Second

// take fires the events of one connection to the pulling socket until the connection ends. As in
// Salt, nearly any tag is allowed: salt-ssh, salt-cloud, and runners and batches in their own
// processes report with salt/job/JID/ret/ID, salt/run/JID/new and others. Nothing here trusts an
// event, and the users of this socket may order all minions anyway.
func (s *Server) take(ctx context.Context, conn *net.UnixConn, pid int32) {
	var guard func(context.Context) error
	if s.deps.Guard != nil {
		guard = s.deps.Guard(pid)
	}
	r := bufio.NewReaderSize(conn, 1<<14)
	for {
		_ = conn.SetReadDeadline(time.Time{}) // fails on a closed connection, as the read does
		if _, err := r.Peek(1); err != nil {
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(restTimeout))
		body, err := readBody(r, s.opts.MaxEvent+maxTag+len(tagEnd))
		if err != nil {
			s.refuse(err)
			return
		}
		tag, data, err := parseBody(body)
		if err != nil {
			s.refuse(err)
			return
		}
		if why, untrue := s.opts.Untrue[tag]; untrue {
			s.metrics.refused.WithLabelValues(whyTag).Inc()
			s.log.Warn("a local process fired an event that is not passed on: "+why, "tag", tag)
			continue
		}
		if guard != nil {
			if err := guard(ctx); err != nil {
				s.metrics.refused.WithLabelValues(whyGuard).Inc()
				s.log.Warn("an event of an engine is refused", "tag", tag, "pid", pid, "err", err)
				continue
			}
		}
		s.pub.admitWaiting() // a process that listens before it fires hears its own event
		s.metrics.fired.Inc()
		s.deps.Bus.Pass(tag, data)
	}
}

// refuse counts the error that ends a connection to the pulling socket.
func (s *Server) refuse(err error) {
	why := whyFrame
	switch {
	case errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return // the process has left, or the master stops
	case errors.Is(err, errTooLarge):
		why = whyLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		why = whySlow
	}
	s.metrics.refused.WithLabelValues(why).Inc()
	s.log.Warn("a local process sent something that is not an event; its connection is closed", "path", s.pull.path,
		"err", err)
}
