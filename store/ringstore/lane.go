package ringstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"

	"google.golang.org/protobuf/proto"
)

// messageBytes is about how large a message between masters gets; a larger record goes in pieces.
// It stays well below gRPC's default limit of 4 MiB, so the store needs no special server options.
const messageBytes = 1 << 20

// send is one group on its way to another master.
type send struct {
	group *ringpb.Group
	size  int
	done  func(node string, reply *ringpb.GroupReply, err error) // called once; must not block
}

// lane carries writes to one other master: what waits while RPCs are under way goes together in the
// next one.
type lane struct {
	store *Store
	node  string
	queue chan *send
	bytes atomic.Int64
	stop  chan struct{}
	once  sync.Once
}

var errLaneFull = errors.New("too much waits for that master")

// lane returns the one to node, nil after Close.
func (s *Store) lane(node string) *lane {
	s.lanesMu.Lock()
	defer s.lanesMu.Unlock()
	l := s.lanes[node]
	if l != nil {
		return l
	}
	l = &lane{store: s, node: node, queue: make(chan *send, s.opts.LaneRecords),
		stop: make(chan struct{})}
	for range s.opts.WriteRPCs {
		if !s.spawn(l.run) {
			return nil
		}
	}
	s.lanes[node] = l
	return l
}

// waitingBytes is the size of what waits in all lanes.
func (s *Store) waitingBytes() (sum int64) {
	s.lanesMu.Lock()
	defer s.lanesMu.Unlock()
	for _, l := range s.lanes {
		sum += l.bytes.Load()
	}
	return sum
}

// dropLanes ends the lanes to masters that are no members any more.
func (s *Store) dropLanes(member func(string) bool) {
	s.lanesMu.Lock()
	defer s.lanesMu.Unlock()
	for node, l := range s.lanes {
		if !member(node) {
			l.close()
			delete(s.lanes, node)
		}
	}
}

func (l *lane) close() { l.once.Do(func() { close(l.stop) }) }

// put queues a send without waiting. An error means that done will not be called.
func (l *lane) put(x *send) error {
	if l == nil {
		return ErrClosed
	}
	select {
	case <-l.stop:
		return l.gone()
	default:
	}
	if waiting := l.bytes.Add(int64(x.size)); waiting > l.store.opts.LaneBytes &&
		waiting > int64(x.size) {
		l.bytes.Add(-int64(x.size))
		l.store.met.lanesFull.WithLabelValues(l.node).Inc()
		return errLaneFull
	}
	select {
	case l.queue <- x:
		return nil
	default:
		l.bytes.Add(-int64(x.size))
		l.store.met.lanesFull.WithLabelValues(l.node).Inc()
		return errLaneFull
	}
}

// gone says why a stopped lane takes nothing: the store closes, or the other master left.
func (l *lane) gone() error {
	select {
	case <-l.store.closed:
		return ErrClosed
	default:
		return errGone
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
					l.bytes.Add(-int64(x.size))
					x.done(l.node, nil, l.gone())
				default:
					return
				}
			}
		}
	}
}

// collect takes what waits behind first, as much as fits one message.
func (l *lane) collect(first *send) []*send {
	batch := []*send{first}
	for size := first.size; size < messageBytes/2 && len(batch) < disk.MaxGroup; {
		select {
		case x := <-l.queue:
			batch = append(batch, x)
			size += x.size
			continue
		default:
		}
		break
	}
	return batch
}

func (l *lane) deliver(batch []*send) {
	req := &ringpb.WriteRequest{Clock: l.store.clock.Read(),
		Groups: make([]*ringpb.Group, len(batch))}
	size := 0
	for i, x := range batch {
		req.Groups[i] = x.group
		size += x.size
	}
	ctx, cancel := context.WithTimeout(l.store.life, l.store.writeTimeout(size))
	reply, err := l.store.callWrite(ctx, l.node, req, size)
	cancel()
	if err == nil && len(reply.Groups) != len(batch) {
		err = fmt.Errorf("write to %s: %d answers to %d groups", l.node, len(reply.Groups),
			len(batch))
	}
	for i, x := range batch {
		l.bytes.Add(-int64(x.size))
		switch {
		case err != nil && l.store.life.Err() != nil:
			x.done(l.node, nil, ErrClosed)
		case err != nil:
			x.done(l.node, nil, err)
		case reply.Groups[i].Error != "":
			x.done(l.node, nil, fmt.Errorf("write to %s: %s", l.node, reply.Groups[i].Error))
		default:
			x.done(l.node, reply.Groups[i], nil)
		}
	}
}

// writeTimeout bounds one RPC that writes: a larger one may take longer, a second for each MiB.
func (s *Store) writeTimeout(size int) time.Duration {
	return s.opts.WriteTimeout + time.Duration(size>>20)*time.Second
}

// callWrite sends one request, in pieces if it is large.
func (s *Store) callWrite(ctx context.Context, node string, req *ringpb.WriteRequest,
	size int) (*ringpb.WriteReply, error) {
	client, err := s.client(node)
	if err != nil {
		return nil, err
	}
	var reply *ringpb.WriteReply
	if size <= messageBytes {
		reply, err = client.Write(ctx, req)
	} else {
		reply, err = writePieces(ctx, client, req)
	}
	if err != nil {
		return nil, fmt.Errorf("write to %s: %w", node, err)
	}
	s.clock.Observe(reply.Clock)
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
		n := min(len(b), messageBytes)
		if err := stream.Send(&ringpb.Piece{Data: b[:n]}); err != nil {
			break // CloseAndRecv tells why
		}
		b = b[n:]
	}
	return stream.CloseAndRecv()
}
