package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// MessageBytes is the approximate maximum size of a message between masters; a larger record goes
// in pieces. It stays well below gRPC's default limit of 4 MiB, so the store needs no special
// server options.
const MessageBytes = 1 << 20

// Send is one group on its way to another master.
type Send struct {
	Group *ringpb.Group
	Size  int // approximate bytes
	// Done is called once, with an answer or an error: disk.ErrClosed, ErrGone, or the reason why
	// the master did not take the group. It must not block.
	Done func(reply *ringpb.GroupReply, err error)
}

// lane sends writes to one other master; those that wait while RPCs run go together in the next
// RPC.
type lane struct {
	m     *Masters
	node  string
	queue chan *Send
	bytes atomic.Int64
	stop  chan struct{}
	once  sync.Once
}

// Reasons why a lane sends nothing to a master.
var (
	ErrFull = errors.New("too much waits for that master")
	ErrGone = errors.New("master went away")
)

// lane returns the lane to node, nil after Close.
func (m *Masters) lane(node string) *lane {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lanes[node]
	if l != nil {
		return l
	}
	l = &lane{m: m, node: node, queue: make(chan *Send, m.LaneRecords),
		stop: make(chan struct{})}
	for range m.LaneCalls {
		if !m.Spawn(l.run) {
			return nil
		}
	}
	m.lanes[node] = l
	return l
}

// Waiting returns the size of the groups that wait in all lanes.
func (m *Masters) Waiting() (sum int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lanes {
		sum += l.bytes.Load()
	}
	return sum
}

// Keep ends the lanes to masters that are no longer members.
func (m *Masters) Keep(member func(string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for node, l := range m.lanes {
		if !member(node) {
			l.close()
			delete(m.lanes, node)
		}
	}
}

// Send queues a group without waiting. If it returns an error (one of Done's, or ErrFull) it does
// not call Done.
func (m *Masters) Send(node string, x *Send) error { return m.lane(node).put(x) }

// Close ends all lanes; Closed must be closed before.
func (m *Masters) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lanes {
		l.close()
	}
}

func (l *lane) close() { l.once.Do(func() { close(l.stop) }) }

// put queues a send without waiting. If it returns an error it does not call Done.
func (l *lane) put(x *Send) error {
	if l == nil {
		return disk.ErrClosed
	}
	select {
	case <-l.stop:
		return l.gone()
	default:
	}
	if waiting := l.bytes.Add(int64(x.Size)); waiting > l.m.LaneBytes &&
		waiting > int64(x.Size) {
		l.bytes.Add(-int64(x.Size))
		l.m.Full(l.node)
		return ErrFull
	}
	select {
	case l.queue <- x:
		return nil
	default:
		l.bytes.Add(-int64(x.Size))
		l.m.Full(l.node)
		return ErrFull
	}
}

// gone returns why a stopped lane takes nothing: the store closes, or the other master left.
func (l *lane) gone() error {
	select {
	case <-l.m.Closed:
		return disk.ErrClosed
	default:
		return ErrGone
	}
}

func (l *lane) run() {
	for {
		select {
		case x := <-l.queue:
			l.deliver(l.collect(x))
		case <-l.stop:
			for {
				select {
				case x := <-l.queue:
					l.bytes.Add(-int64(x.Size))
					x.Done(nil, l.gone())
				default:
					return
				}
			}
		}
	}
}

// collect takes the sends queued after first, as many as fit one message.
func (l *lane) collect(first *Send) []*Send {
	batch := []*Send{first}
	for size := first.Size; size < MessageBytes/2 && len(batch) < disk.MaxGroup; {
		select {
		case x := <-l.queue:
			batch = append(batch, x)
			size += x.Size
			continue
		default:
		}
		break
	}
	return batch
}

func (l *lane) deliver(batch []*Send) {
	req := &ringpb.WriteRequest{Groups: make([]*ringpb.Group, len(batch))}
	size := 0
	for i, x := range batch {
		req.Groups[i] = x.Group
		size += x.Size
	}
	ctx, cancel := context.WithTimeout(l.m.Life, l.m.TimeoutOf(size))
	reply, err := l.m.Write(ctx, l.node, req, size)
	cancel()
	if err == nil && len(reply.Groups) != len(batch) {
		err = fmt.Errorf("write to %s: %d answers to %d groups", l.node, len(reply.Groups),
			len(batch))
	}
	for i, x := range batch {
		l.bytes.Add(-int64(x.Size))
		switch {
		case err != nil && l.m.Life.Err() != nil:
			x.Done(nil, disk.ErrClosed)
		case err != nil:
			x.Done(nil, err)
		case reply.Groups[i].Error != "":
			x.Done(nil, fmt.Errorf("write to %s: %s", l.node, reply.Groups[i].Error))
		default:
			x.Done(reply.Groups[i], nil)
		}
	}
}

// CodeDoubted is the gRPC code by which a master refuses all writes while it doubts its own
// records, which it may have to drop. Former releases refuse them by Unavailable.
const CodeDoubted = codes.Aborted

// TimeoutOf bounds one RPC that writes: WriteTimeout, plus a second for each MiB.
func (m *Masters) TimeoutOf(size int) time.Duration {
	return m.WriteTimeout + time.Duration(size>>20)*time.Second
}

// Write sends one request, in pieces if it is large; size is the approximate size of its records,
// in bytes.
func (m *Masters) Write(ctx context.Context, node string, req *ringpb.WriteRequest,
	size int) (*ringpb.WriteReply, error) {
	req.Clock = m.Clock.Read()
	client, err := m.client(node)
	if err != nil {
		return nil, err
	}
	var reply *ringpb.WriteReply
	if size <= MessageBytes {
		reply, err = client.Write(ctx, req)
	} else {
		reply, err = writePieces(ctx, client, req)
	}
	if err != nil {
		return nil, fmt.Errorf("write to %s: %w", node, err)
	}
	m.Clock.Hear(reply.Clock)
	return reply, nil
}

func writePieces(ctx context.Context, client ringpb.RingClient,
	req *ringpb.WriteRequest) (*ringpb.WriteReply, error) {
	b, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	stream, err := client.WriteLarge(ctx)
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		n := min(len(b), MessageBytes)
		if err := stream.Send(&ringpb.Piece{Data: b[:n]}); err != nil {
			break // CloseAndRecv returns the reason
		}
		b = b[n:]
	}
	return stream.CloseAndRecv()
}
