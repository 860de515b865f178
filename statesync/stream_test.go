package statesync

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"clustermaster/statesync/syncpb"
)

// contents are what the fuzz targets of the blob stream ask for: nothing, a little, and more than
// one piece of a size.
func contents(piece int) [][]byte {
	return [][]byte{{}, []byte("a little"), bytes.Repeat([]byte("clustermaster "), piece/10)}
}

// liar is a master whose stream of contents is made up: messages, each after its length in three
// bytes.
type liar struct {
	*box
	grpc.ClientConnInterface
	grpc.ClientStream
	ctx    context.Context
	stream []byte
	sent   int64 // bytes of contents handed out
}

func (l *liar) Conn(string) (grpc.ClientConnInterface, error) { return l, nil }

func (l *liar) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string,
	_ ...grpc.CallOption) (grpc.ClientStream, error) {
	l.ctx = ctx
	return l, nil
}

func (l *liar) SendMsg(any) error        { return nil }
func (l *liar) CloseSend() error         { return nil }
func (l *liar) Context() context.Context { return l.ctx }

func (l *liar) RecvMsg(m any) error {
	if len(l.stream) < 3 {
		return io.EOF
	}
	n := min(int(l.stream[0])<<16|int(binary.BigEndian.Uint16(l.stream[1:])), len(l.stream)-3)
	b := l.stream[3 : 3+n]
	l.stream = l.stream[3+n:]
	p := m.(*syncpb.Piece)
	if err := proto.Unmarshal(b, p); err != nil {
		return err
	}
	l.sent += int64(len(p.GetData()))
	return nil
}

// streamOf packs pieces as liar reads them.
func streamOf(tb testing.TB, pieces ...*syncpb.Piece) (out []byte) {
	tb.Helper()
	for _, p := range pieces {
		b, err := proto.Marshal(p)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(append(out, byte(len(b)>>16), byte(len(b)>>8), byte(len(b))), b...)
	}
	return out
}

// smallPiece keeps the seeds small, for which the receiver does not care.
const smallPiece = 200

// honest are the pieces of a content, from an offset on.
func honest(index int, content []byte, offset int) (out []*syncpb.Piece) {
	for {
		n := min(smallPiece, len(content)-offset)
		p := &syncpb.Piece{Index: uint32(index), Data: content[offset : offset+n]}
		offset += n
		p.End = offset == len(content)
		if out = append(out, p); p.End {
			return out
		}
	}
}

// Whatever another master sends, the store has right contents only, what it lacks is named, and no
// more is kept than was asked for. kept is what lies there of the last content already.
func FuzzFetch(f *testing.F) {
	all := contents(smallPiece)
	whole := slices.Concat(honest(0, all[0], 0), honest(1, all[1], 0), honest(2, all[2], 0))
	f.Add(streamOf(f, whole...), []byte{})
	f.Add(streamOf(f, slices.Concat([]*syncpb.Piece{{}}, honest(0, all[0], 0), honest(1, all[1], 0),
		honest(2, all[2], 5))...), all[2][:5])
	f.Add(streamOf(f, whole...), []byte("something else"))
	f.Add(streamOf(f, &syncpb.Piece{Index: 0, Missing: true, End: true},
		&syncpb.Piece{Index: 1, Data: []byte("a lot, more than was asked for")}), []byte{})
	f.Add(streamOf(f, &syncpb.Piece{Index: 2, Data: []byte("x"), End: true}), []byte{})
	f.Add(streamOf(f, slices.Concat(honest(0, all[0], 0), honest(1, []byte("A LITTLE"), 0),
		honest(2, all[2], 0), honest(3, []byte("more"), 0))...), []byte{})
	f.Add([]byte{0, 255, 255, 1, 2}, []byte{})

	b := newCompany(f, 1).boxes[0]
	s := b.Store
	var batch []need
	for _, c := range all {
		batch = append(batch, need{sumOf(c), int64(len(c))})
	}
	f.Fuzz(func(t *testing.T, stream, kept []byte) {
		for _, n := range batch {
			s.blobs.drop(n.sum)
			s.blobs.dropPart(n.sum)
		}
		last := batch[2]
		if err := os.WriteFile(s.blobs.partPath(last.sum), kept, 0o600); err != nil {
			t.Fatal(err)
		}
		l := &liar{box: b, stream: stream}
		s.peers = l
		counted := int64(0)
		left, err := s.fetch(t.Context(), "m2/1", slices.Clone(batch),
			func(n int64) { counted += n })
		if counted > l.sent {
			t.Errorf("%d bytes were counted, %d sent", counted, l.sent)
		}
		for i, n := range batch {
			missing := slices.Contains(left, n)
			b, lerr := s.blobs.load(n.sum, n.size)
			switch {
			case lerr == nil && !bytes.Equal(b, all[i]):
				t.Errorf("content %d is %d other bytes", i, len(b))
			case lerr == nil == missing &&
				// after an error more may be asked for again than is needed
				(err == nil || !missing):
				t.Errorf("content %d: left is %v, the store says %v; fetch said %v", i, missing,
					lerr, err)
			}
			if st, err := os.Stat(s.blobs.partPath(n.sum)); err == nil &&
				st.Size() > max(n.size, int64(len(kept))) {
				t.Errorf("%d bytes are kept of a content of %d", st.Size(), n.size)
			}
		}
		files := 0
		if err := s.blobs.each(func(_ Sum, _ string,
			_ fs.FileInfo) error {
			files++
			return nil
		}); err != nil || files > len(batch) {
			t.Errorf("%d files in the store, %v", files, err)
		}
	})
}

// listener takes the pieces that a master sends.
type listener struct {
	grpc.ServerStream
	ctx    context.Context
	pieces []*syncpb.Piece
}

func (l *listener) Context() context.Context { return l.ctx }

func (l *listener) Send(p *syncpb.Piece) error {
	l.pieces = append(l.pieces, p)
	return nil
}

// Whatever another master asks for, it gets what it named and nothing else, in bounded pieces.
func FuzzServe(f *testing.F) {
	all := contents(pieceSize)
	for _, r := range []*syncpb.BlobsRequest{
		{}, {Blobs: []*syncpb.Blob{{Sum: []byte("short")}}},
		{Blobs: []*syncpb.Blob{{Sum: sumBytes(all[0])}, {Sum: sumBytes(all[1]), Size: 8, Offset: 3},
			{Sum: sumBytes(all[2]), Size: int64(len(all[2]))}}},
		{Blobs: []*syncpb.Blob{{Sum: sumBytes(all[1]), Size: 9},
			{Sum: sumBytes(all[1]), Size: 8, Offset: -1},
			{Sum: sumBytes(all[1]), Size: 8, Offset: 9}}},
		{Blobs: slices.Repeat([]*syncpb.Blob{{Sum: make([]byte, 32), Size: 1 << 62}},
			batchBlobs+1)},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s := newCompany(f, 1).boxes[0].Store
	has := map[Sum][]byte{}
	for _, c := range all {
		sum, err := s.blobs.put(c)
		if err != nil {
			f.Fatal(err)
		}
		has[sum] = c
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &syncpb.BlobsRequest{}
		if proto.Unmarshal(b, r) != nil {
			return
		}
		l := &listener{ctx: t.Context()}
		err := (&service{s: s}).Blobs(r, l)
		if n := len(r.GetBlobs()); (n == 0 || n > batchBlobs) && (err == nil || len(l.pieces) > 0) {
			t.Fatalf("%d contents were asked for and %d pieces given", n, len(l.pieces))
		}
		if len(s.sends) > 0 {
			t.Fatal("its place among those who get something is not given back")
		}
		got, ended := make([][]byte, len(r.GetBlobs())), 0
		for _, p := range l.pieces {
			if int(p.GetIndex()) != ended || len(p.GetData()) > pieceSize {
				t.Fatalf("%d bytes of %d, after the end of %d", len(p.GetData()),
					p.GetIndex(), ended)
			}
			got[ended] = append(got[ended], p.GetData()...)
			if !p.GetEnd() {
				continue
			}
			asked := r.GetBlobs()[ended]
			sum, _ := sumFrom(asked.GetSum())
			content, ok := has[sum]
			ok = ok && asked.GetSize() == int64(len(content)) && asked.GetOffset() >= 0 &&
				asked.GetOffset() <= asked.GetSize()
			if ok == p.GetMissing() || ok &&
				!bytes.Equal(got[ended], content[asked.GetOffset():]) || !ok &&
				len(got[ended]) > 0 {
				t.Fatalf("%v got %d bytes, missing %v", asked, len(got[ended]), p.GetMissing())
			}
			ended++
		}
		if err == nil && ended != len(r.GetBlobs()) {
			t.Fatalf("%d of %d contents were ended", ended, len(r.GetBlobs()))
		}
	})
}

func sumBytes(content []byte) []byte {
	s := sumOf(content)
	return s[:]
}
