package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"clustermaster/cluster/level"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
)

// Options are what calls use. All are needed.
type Options struct {
	Self string // this master's node name
	// Conn returns a connection to another master; it may dial.
	Conn  func(node string) (grpc.ClientConnInterface, error)
	Clock *disk.Clock // follows the other masters' clocks

	WriteTimeout time.Duration // of a call that writes, plus a second for each MiB
	ReadTimeout  time.Duration // the longest silence within an answer
	MaxRecord    int           // bytes of one value
	LaneRecords  int           // records that wait for one master
	LaneBytes    int64         // bytes that wait for one master
	LaneCalls    int           // running writes to one master

	// Spawn runs a function in a goroutine, or returns false without running it while the store
	// closes.
	Spawn  func(func()) bool
	Life   context.Context   // parent of calls without a waiting caller
	Closed <-chan struct{}   // closed when the store closes
	Full   func(node string) // called when too much waits for a master; must not block
}

// Masters calls the other masters. It is safe for concurrent use.
type Masters struct {
	Options

	mu    sync.Mutex // guards lanes
	lanes map[string]*lane
}

// New returns the calls to other masters.
func New(o Options) *Masters { return &Masters{Options: o, lanes: map[string]*lane{}} }

func (m *Masters) client(node string) (ringpb.RingClient, error) {
	conn, err := m.Conn(node)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", node, err)
	}
	return ringpb.NewRingClient(conn), nil
}

// Status asks a master for its state; epoch is the newest ring's here, 0 without a ring.
func (m *Masters) Status(ctx context.Context, node string, epoch uint64) (*ringpb.StatusReply,
	error) {
	client, err := m.client(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.WriteTimeout)
	defer cancel()
	reply, err := client.Status(ctx, &ringpb.StatusRequest{Clock: m.Clock.Read(), Epoch: epoch,
		Node: m.Self})
	if err != nil {
		return nil, fmt.Errorf("ask %s for its state: %w", node, err)
	}
	m.Clock.Hear(reply.Clock)
	return reply, nil
}

// Digest asks a master for its digests.
func (m *Masters) Digest(ctx context.Context, node string,
	req *ringpb.DigestRequest) (*ringpb.DigestReply, error) {
	client, err := m.client(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.ReadTimeout)
	defer cancel()
	req.Clock = m.Clock.Read()
	reply, err := client.Digest(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask %s for a digest: %w", node, err)
	}
	m.Clock.Hear(reply.Clock)
	return reply, nil
}

// Ask sends a question to a master.
func (m *Masters) Ask(ctx context.Context, node string,
	req *ringpb.AskRequest) (grpc.ServerStreamingClient[ringpb.Verdicts], error) {
	client, err := m.client(node)
	if err != nil {
		return nil, err
	}
	return client.Ask(ctx, req)
}

// Fetch calls fn with a master's records under some keys, page by page.
func (m *Masters) Fetch(ctx context.Context, node string, req *ringpb.FetchRequest,
	fn func([]disk.Record) error) (Info, error) {
	client, err := m.client(node)
	if err != nil {
		return Info{}, err
	}
	// Only silence ends it: a large record takes long on a slow line.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(m.ReadTimeout, cancel)
	req.Clock = m.Clock.Read()
	stream, err := client.Fetch(ctx, req)
	silence.Stop()
	if err != nil {
		return Info{}, fmt.Errorf("read from %s: %w", node, err)
	}
	return m.receive(node, stream, cancel, fn)
}

// List calls fn with a master's records of a place, page by page.
func (m *Masters) List(ctx context.Context, node string, req *ringpb.ListRequest,
	fn func([]disk.Record) error) (Info, error) {
	client, err := m.client(node)
	if err != nil {
		return Info{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req.Clock = m.Clock.Read()
	stream, err := client.List(ctx, req)
	if err != nil {
		return Info{}, fmt.Errorf("list from %s: %w", node, err)
	}
	return m.receive(node, stream, cancel, fn)
}

// Scan calls fn with a master's records of partitions or cells, page by page.
func (m *Masters) Scan(ctx context.Context, node string, req *ringpb.ScanRequest,
	fn func([]disk.Record) error) error {
	client, err := m.client(node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req.Clock = m.Clock.Read()
	stream, err := client.Scan(ctx, req)
	if err != nil {
		return fmt.Errorf("scan %s: %w", node, err)
	}
	_, err = m.receive(node, stream, cancel, fn)
	return err
}

// Info is the part of an answer besides its records.
type Info struct {
	Same   bool // none are sent, because they are the same as this master's
	Behind bool // the answering master may lack records
}

// receive reads a stream of chunks to its end and calls fn with the records. It joins the pieces of
// a large record, up to MaxRecord bytes. If the sender is silent for ReadTimeout it calls cancel,
// which must end the stream's context; the time that fn takes does not count.
func (m *Masters) receive(node string, stream grpc.ServerStreamingClient[ringpb.Chunk],
	cancel context.CancelFunc, fn func([]disk.Record) error) (Info, error) {
	var info Info
	var large []byte
	silence := time.AfterFunc(m.ReadTimeout, cancel)
	defer silence.Stop()
	for {
		silence.Reset(m.ReadTimeout)
		chunk, err := stream.Recv()
		silence.Stop()
		if errors.Is(err, io.EOF) {
			if large != nil {
				return info, fmt.Errorf("read from %s: %w", node, io.ErrUnexpectedEOF)
			}
			return info, nil
		}
		if err != nil {
			return info, fmt.Errorf("read from %s: %w", node, err)
		}
		m.Clock.Hear(chunk.Clock)
		info.Same = info.Same || chunk.Same
		info.Behind = info.Behind || chunk.Behind
		records := make([]disk.Record, 0, len(chunk.Records)+1)
		for _, r := range chunk.Records {
			records = append(records, FromWire(r))
		}
		if len(chunk.Piece) > 0 || chunk.PieceEnd {
			if len(large)+len(chunk.Piece) > m.MaxRecord+MessageBytes {
				return info, fmt.Errorf("read from %s: record: %w", node, disk.ErrTooLarge)
			}
			large = append(large, chunk.Piece...)
			if chunk.PieceEnd {
				var r ringpb.Record
				if err := errors.Join(proto.Unmarshal(large, &r),
					level.CheckMessage(&r)); err != nil {
					return info, fmt.Errorf("read from %s: %w", node, err)
				}
				large = nil
				records = append(records, FromWire(&r))
			}
		}
		if len(records) > 0 {
			if err := fn(records); err != nil {
				return info, err
			}
		}
	}
}
