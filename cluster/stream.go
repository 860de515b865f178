package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/raft"
)

// limitedStreams limits the streams that peers dial.
type limitedStreams struct{ raft.StreamLayer }

// Accept implements net.Listener.
func (l limitedStreams) Accept() (net.Conn, error) {
	c, err := l.StreamLayer.Accept()
	if err != nil {
		return nil, err
	}
	return &limitedStream{Conn: c}, nil
}

// limitedStream is a stream on which a peer sends requests, each after the answer to the one
// before. Between requests it may be silent. A request that has begun and then brings no byte for
// raftTimeout ends the stream. Without that limit, a leader that stops while it sends a snapshot
// (SIGSTOP, a frozen container) would hold up its follower's votes until it goes on or dies: its
// kernel keeps the connection alive.
type limitedStream struct {
	net.Conn
	// a request has begun, and is not answered yet
	begun bool
	// why reading has ended; raft reads on after an error, to discard the rest of a snapshot
	err error
}

// Read implements net.Conn.
func (s *limitedStream) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	var limit time.Time
	if s.begun {
		limit = time.Now().Add(raftTimeout)
	}
	if err := s.SetReadDeadline(limit); err != nil {
		return 0, err
	}
	n, err := s.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the peer stopped in the middle of a request: %w", err)
	}
	s.begun, s.err = true, err
	return n, err
}

// Write implements net.Conn. Only answers are written.
func (s *limitedStream) Write(b []byte) (int, error) {
	s.begun = false
	return s.Conn.Write(b)
}
