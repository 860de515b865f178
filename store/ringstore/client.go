package ringstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"clustermaster/cluster/level"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

func (s *Store) client(node string) (ringpb.RingClient, error) {
	conn, err := s.peers.Conn(node)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", node, err)
	}
	return ringpb.NewRingClient(conn), nil
}

func (s *Store) askStatus(ctx context.Context, node string, epoch uint64) (*ringpb.StatusReply,
	error) {
	client, err := s.client(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.WriteTimeout)
	defer cancel()
	reply, err := client.Status(ctx, &ringpb.StatusRequest{Clock: s.clock.Read(), Epoch: epoch,
		Node: s.self})
	if err != nil {
		return nil, fmt.Errorf("ask %s for its state: %w", node, err)
	}
	s.clock.Observe(reply.Clock)
	return reply, nil
}

func (s *Store) askDigest(ctx context.Context, node string,
	req *ringpb.DigestRequest) (*ringpb.DigestReply, error) {
	client, err := s.client(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadTimeout)
	defer cancel()
	req.Clock = s.clock.Read()
	reply, err := client.Digest(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask %s for a digest: %w", node, err)
	}
	s.clock.Observe(reply.Clock)
	return reply, nil
}

// chunkInfo is what a stream says beside its records.
type chunkInfo struct{ same, behind bool }

// receive reads a stream of chunks to its end and calls fn with the records. Pieces of a large
// record are put together, at most MaxRecord bytes. A sender that says nothing for ReadTimeout is
// given up by cancel, which must end the stream's context; the time that fn takes does not count.
func (s *Store) receive(node string, stream grpc.ServerStreamingClient[ringpb.Chunk],
	cancel context.CancelFunc, fn func([]Record) error) (chunkInfo, error) {
	var info chunkInfo
	var large []byte
	silence := time.AfterFunc(s.opts.ReadTimeout, cancel)
	defer silence.Stop()
	for {
		silence.Reset(s.opts.ReadTimeout)
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
		s.clock.Observe(chunk.Clock)
		info.same = info.same || chunk.Same
		info.behind = info.behind || chunk.Behind
		records := make([]Record, 0, len(chunk.Records)+1)
		for _, r := range chunk.Records {
			records = append(records, fromWire(r))
		}
		if len(chunk.Piece) > 0 || chunk.PieceEnd {
			if len(large)+len(chunk.Piece) > s.opts.MaxRecord+messageBytes {
				return info, fmt.Errorf("read from %s: record: %w", node, ErrTooLarge)
			}
			large = append(large, chunk.Piece...)
			if chunk.PieceEnd {
				var r ringpb.Record
				if err := errors.Join(proto.Unmarshal(large, &r),
					level.CheckMessage(&r)); err != nil {
					return info, fmt.Errorf("read from %s: %w", node, err)
				}
				large = nil
				records = append(records, fromWire(&r))
			}
		}
		if len(records) > 0 {
			if err := fn(records); err != nil {
				return info, err
			}
		}
	}
}

func toWire(r *Record) *ringpb.Record {
	return &ringpb.Record{
		Space: uint32(r.Space), Place: []byte(r.Place), Name: []byte(r.Name), Value: r.Value,
		Clock: r.Version.Clock, Node: r.Version.Node, Expires: disk.UnixSeconds(r.Expires),
		Flags:     uint32(r.Flags),
		Partition: uint32(r.Partition),
	}
}

func fromWire(r *ringpb.Record) Record {
	return Record{
		Key: Key{Space: Space(r.GetSpace()), Place: string(r.GetPlace()),
			Name: string(r.GetName())},
		Value: r.GetValue(), Version: Version{Clock: r.GetClock(), Node: r.GetNode()},
		Expires: disk.SecondsTime(r.GetExpires()), Partition: int(r.GetPartition()),
		Flags: uint8(r.GetFlags()),
	}
}

// checkRecord refuses what no master of ours sends.
func checkRecord(r *Record, maxValue int) error {
	switch {
	case r.Key.Check() != nil:
		return r.Key.Check()
	case len(r.Value) > maxValue:
		return fmt.Errorf("value of %d bytes, at most %d: %w", len(r.Value), maxValue, ErrTooLarge)
	case r.Partition < 0 || r.Partition >= rings.MaxPartitions:
		return fmt.Errorf("partition %d: %w", r.Partition, ErrTooLarge)
	case r.Expires.Unix() < 0 && !r.Expires.IsZero():
		return fmt.Errorf("expiry %v: %w", r.Expires, ErrCorrupt)
	}
	return nil
}
