package operator

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/serve/operator/operatorpb"
	"clustermaster/value"
)

// Bounds of what users other than root and the master's may send, so that none of them fills the
// master's memory. Calls and sizes are those of orders on port 4506.
const (
	maxCalls        = 64                 // of one user at a time
	maxCallsOfUsers = 256                // of all together
	maxUserRequest  = 1 << 20            // bytes of one request
	maxUserWeight   = 4 * maxUserRequest // bytes of memory that the values of one request take
	maxArrival      = 10 * time.Second   // of a request; then the connection is closed
	maxUserStreams  = 16                 // on one connection; a client waits for its turn
	maxUserHeaders  = 8 << 10            // bytes of the headers of one call
	userWindow      = 64 << 10           // bytes that gRPC keeps of a stream that is not read
	// gRPC keeps each frame apart, in some 80 bytes beside its contents. So frames of data have
	// meanFrame bytes on average, except for maxSmallFrames in a row and one per call.
	meanFrame      = 256
	maxSmallFrames = 1024
)

// What HTTP/2 (RFC 9113) says of a client's bytes: frames follow a preface. The head of each begins
// with the length of its contents, in three bytes, and its type.
const (
	preface      = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameData    = 0
	frameHeaders = 1
)

// ofUsers are options of the gRPC server for users.
var ofUsers = []grpc.ServerOption{
	grpc.MaxRecvMsgSize(maxUserRequest), grpc.MaxConcurrentStreams(maxUserStreams),
	grpc.MaxHeaderListSize(maxUserHeaders),
	grpc.StaticStreamWindowSize(userWindow), grpc.StaticConnWindowSize(userWindow),
}

// arriving bounds what arrives on a user's connection.
type arriving struct {
	conn *net.UnixConn
	m    *metrics

	// of the frames of HTTP/2, used by the reader alone
	head  [9]byte
	have  int // bytes of head
	skip  int // bytes that belong to no head: the preface, later the contents of a frame
	small int // see meanFrame

	mu sync.Mutex // guards n
	n  int        // requests that have not arrived as a whole
}

func newArriving(c *net.UnixConn, m *metrics) *arriving {
	return &arriving{conn: c, m: m, skip: len(preface)}
}

// begin counts a request. The time that all have begins with the first one.
func (a *arriving) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n++; a.n == 1 {
		_ = a.conn.SetReadDeadline(time.Now().Add(maxArrival)) // fails on a closed connection
	}
}

func (a *arriving) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n == 0 {
		_ = a.conn.SetReadDeadline(time.Time{})
	}
}

var errSmallFrames = errors.New("too many small frames")

// read looks at bytes that were read. Its error closes the connection.
func (a *arriving) read(p []byte) error {
	for len(p) > 0 {
		if n := min(a.skip, len(p)); n > 0 {
			a.skip, p = a.skip-n, p[n:]
			continue
		}
		n := copy(a.head[a.have:], p)
		a.have, p = a.have+n, p[n:]
		if a.have < len(a.head) {
			return nil
		}
		a.have, a.skip = 0, int(a.head[0])<<16|int(a.head[1])<<8|int(a.head[2])
		switch a.head[3] {
		case frameData:
			a.small = max(0, a.small-a.skip/meanFrame) + 1
		case frameHeaders:
			a.small = max(0, a.small-1)
		}
		if a.small > maxSmallFrames {
			a.m.refuse(whyFrames)
			return errSmallFrames
		}
	}
	return nil
}

// bounded receives a request, that of a user within the bounds above.
func bounded(ctx context.Context, receive func(any) error, req any) error {
	c, _ := callerOf(ctx)
	if c.arriving == nil {
		return receive(req)
	}
	c.arriving.begin()
	err := receive(req)
	c.arriving.end()
	if err != nil {
		return err
	}
	n, err := weight(req)
	switch {
	case err != nil:
		return badValue("request", err)
	case n > maxUserWeight:
		c.arriving.m.refuse(whyLarge)
		return status.Errorf(codes.ResourceExhausted,
			"the request takes %d bytes of memory, this user's at most %d; send less at a time", n,
			maxUserWeight)
	}
	return nil
}

// boundedStream is the stream of one call.
type boundedStream struct{ grpc.ServerStream }

func (s boundedStream) RecvMsg(req any) error {
	return bounded(s.Context(), s.ServerStream.RecvMsg, req)
}

// weight returns how many bytes of memory the packed values of a request take once they are read.
func weight(req any) (sum int64, err error) {
	var packed [][]byte
	switch r := req.(type) {
	case *operatorpb.PublishRequest:
		packed = [][]byte{r.Tgt, r.Fun, r.Arg, r.Kwargs}
	case *operatorpb.TargetsRequest:
		packed = [][]byte{r.Tgt}
	case *operatorpb.RunRequest:
		packed = [][]byte{r.Args, r.Kwargs}
	}
	for _, b := range packed {
		if len(b) == 0 {
			continue
		}
		n, err := value.Weigh(b)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
