package remote

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
)

// madeUp is a stream that another master made up: messages, each after its length in two bytes.
type madeUp struct {
	grpc.ClientStream
	stream []byte
	pieces int // bytes of pieces of large records handed out
}

func (c *madeUp) Recv() (*ringpb.Chunk, error) {
	if len(c.stream) < 2 {
		return nil, io.EOF
	}
	n := min(int(binary.BigEndian.Uint16(c.stream)), len(c.stream)-2)
	m := &ringpb.Chunk{}
	err := proto.Unmarshal(c.stream[2:2+n], m)
	c.stream = c.stream[2+n:]
	c.pieces += len(m.Piece)
	return m, err
}

// Whatever another master streams: no more than one record's bytes are held, records that no master
// of ours sends don't get through the check that comes before the disk, and a stream that ends
// inside a record is an error.
func FuzzReceive(f *testing.F) {
	rec := ToWire(&disk.Record{Key: disk.Key{Space: 1, Place: "20261121093335299638",
		Name: "r/web1"},
		Value: []byte("value"), Version: disk.Version{Clock: 7, Node: 8}, Partition: 3})
	packed, err := proto.Marshal(rec)
	if err != nil {
		f.Fatal(err)
	}
	for _, list := range [][]*ringpb.Chunk{
		{{Clock: 1, Same: true}, {Records: []*ringpb.Record{rec, rec}, Behind: true}},
		{{Piece: packed[:9]}, {Piece: packed[9:], PieceEnd: true},
			{Records: []*ringpb.Record{{Partition: 1 << 31, Expires: -5}}}},
		{{Piece: packed[:9]}}, {{PieceEnd: true}},
		{{Piece: bytes.Repeat([]byte{0}, 3000)}, {Piece: bytes.Repeat([]byte{0}, 3000)}},
	} {
		var stream []byte
		for _, m := range list {
			b, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			stream = append(binary.BigEndian.AppendUint16(stream, uint16(len(b))), b...)
		}
		f.Add(stream)
	}
	limit := 1000
	m := New(Options{Clock: disk.NewClock(time.Now), ReadTimeout: time.Minute, MaxRecord: limit})
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := &madeUp{stream: stream}
		info, err := m.receive("b", c, func() {}, func(records []disk.Record) error {
			for i := range records {
				r := &records[i]
				if Check(r, limit) != nil {
					continue
				}
				if len(r.Value) > limit || r.Partition < 0 || r.Partition >= disk.MaxPartitions ||
					r.Key.Check() != nil {
					t.Errorf("%+v passes the check", r)
				}
				again := FromWire(ToWire(r))
				if again.Key != r.Key || again.Version != r.Version ||
					!bytes.Equal(again.Value, r.Value) || again.Partition != r.Partition ||
					again.Flags != r.Flags {
					t.Errorf("%+v becomes %+v", r, again)
				}
			}
			return nil
		})
		if err == nil && len(c.stream) >= 2 {
			t.Errorf("it ended before the stream did: %+v", info)
		}
	})
}
