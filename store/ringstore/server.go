package ringstore

import (
	"context"
	"errors"
	"io"
	"time"

	"clustermaster/cluster/level"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/query"
	"clustermaster/store/ringstore/remote"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// pageBytes is how much of the disk is read before it is sent.
const pageBytes = 256 << 10

// server answers the other masters. The peer port has authenticated them.
type server struct {
	ringpb.UnimplementedRingServer
	s *Store
}

// RegisterRPC adds the service by which the other masters reach this store.
func (s *Store) RegisterRPC(r grpc.ServiceRegistrar) { ringpb.RegisterRingServer(r, &server{s: s}) }

func (v *server) refuse(code codes.Code, reason string, err error) error {
	v.s.met.refused.WithLabelValues(reason).Inc()
	return status.Error(code, err.Error())
}

func (v *server) Write(ctx context.Context, req *ringpb.WriteRequest) (*ringpb.WriteReply, error) {
	v.s.clock.Hear(req.Clock)
	// Senders forget what they hand over, and this store may be dropped.
	if err := v.s.doubted(); err != nil {
		return nil, v.refuse(remote.CodeDoubted, "away", err)
	}
	reply := &ringpb.WriteReply{Groups: make([]*ringpb.GroupReply, len(req.Groups))}
	tasks := make([]*disk.Write, len(req.Groups))
	done := make(chan struct{}, len(req.Groups))
	waiting := 0
	for i, g := range req.Groups {
		t, err := v.taskOf(g)
		if err == nil {
			t.Done = func(*disk.Write) { done <- struct{}{} }
			err = v.s.disk.Submit(ctx, t)
		}
		if err != nil {
			v.s.met.refused.WithLabelValues("write").Inc()
			reply.Groups[i] = &ringpb.GroupReply{Error: err.Error()}
			continue
		}
		tasks[i] = t
		waiting++
	}
	for range waiting {
		select {
		case <-done:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	for i, t := range tasks {
		if t == nil {
			continue
		}
		reply.Groups[i] = groupReply(t)
		if t.Stale != 0 {
			v.s.met.stale.Inc()
		}
	}
	reply.Clock = v.s.clock.Read()
	return reply, nil
}

func (v *server) taskOf(g *ringpb.Group) (*disk.Write, error) {
	t := &disk.Write{Epoch: g.GetEpoch(), Fresh: g.GetFresh(),
		Changes: make([]disk.Change, len(g.GetChanges()))}
	if len(t.Changes) > disk.MaxGroup*4 {
		return nil, ErrTooLarge
	}
	for i, c := range g.GetChanges() {
		t.Changes[i] = remote.FromChange(c)
		if err := remote.Check(&t.Changes[i].Record, v.s.opts.MaxRecord); err != nil {
			return nil, err
		}
		v.s.clock.Observe(t.Changes[i].Record.Version.Clock)
	}
	return t, nil
}

func groupReply(t *disk.Write) *ringpb.GroupReply {
	r := &ringpb.GroupReply{Stale: t.Stale}
	if t.Err != nil {
		r.Error = t.Err.Error()
	}
	for _, k := range t.Kept {
		r.Outcomes = append(r.Outcomes, &ringpb.Outcome{Index: uint32(k.Index),
			Clock: k.Version.Clock, Node: k.Version.Node, Flags: uint32(k.Flags)})
	}
	return r
}

func (v *server) WriteLarge(stream grpc.ClientStreamingServer[ringpb.Piece,
	ringpb.WriteReply]) error {
	if !v.enter(stream.Context()) {
		return v.refuse(codes.ResourceExhausted, "busy", errors.New("too many streams"))
	}
	defer v.leave()
	var b []byte
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(b)+len(piece.Data) > v.s.opts.MaxRecord+2*remote.MessageBytes {
			return v.refuse(codes.ResourceExhausted, "too_large", ErrTooLarge)
		}
		b = append(b, piece.Data...)
	}
	var req ringpb.WriteRequest
	if err := errors.Join(proto.Unmarshal(b, &req), level.CheckMessage(&req)); err != nil {
		return v.refuse(codes.InvalidArgument, "garbage", err)
	}
	reply, err := v.Write(stream.Context(), &req)
	if err != nil {
		return err
	}
	return stream.SendAndClose(reply)
}

// enter takes one of the places for streams, waiting a little for it.
func (v *server) enter(ctx context.Context) bool {
	select {
	case v.s.streams <- struct{}{}:
		return true
	default:
	}
	t := time.NewTimer(v.s.opts.WriteTimeout)
	defer t.Stop()
	select {
	case v.s.streams <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-v.s.closed:
	case <-t.C:
	}
	return false
}

func (v *server) leave() { <-v.s.streams }

// fence refuses reads by a ring that this master has given up: it may have dropped records that it
// owned by that ring, and later writes did not go to that ring's owners any more.
func (v *server) fence(base uint64) error {
	if view := v.s.view.Load(); base == 0 || view == nil || view.Ring(base) != nil {
		return nil
	}
	return v.refuse(codes.FailedPrecondition, "left", rings.ErrLeft)
}

// end sends the remaining records, unless the ring was given up while they were read.
func (r *reader) end(base uint64) error {
	if err := r.v.fence(base); err != nil {
		return err
	}
	return r.flush()
}

// reader collects records into chunks.
type reader struct {
	v      *server
	stream grpc.ServerStreamingServer[ringpb.Chunk]
	chunk  *ringpb.Chunk
	size   int
}

func (v *server) reader(stream grpc.ServerStreamingServer[ringpb.Chunk]) *reader {
	return &reader{v: v, stream: stream, chunk: &ringpb.Chunk{Behind: v.s.isBehind()}}
}

func (r *reader) add(records []Record) error {
	for i := range records {
		w := remote.ToWire(&records[i])
		size := len(w.Value) + len(w.Name) + len(w.Place) + 64
		if size > remote.MessageBytes {
			if err := r.large(w); err != nil {
				return err
			}
			continue
		}
		if r.size+size > remote.MessageBytes {
			if err := r.flush(); err != nil {
				return err
			}
		}
		r.chunk.Records = append(r.chunk.Records, w)
		r.size += size
	}
	if r.size >= pageBytes {
		return r.flush()
	}
	return nil
}

func (r *reader) large(w *ringpb.Record) error {
	b, err := proto.Marshal(w)
	if err != nil {
		return err
	}
	if err := r.flush(); err != nil {
		return err
	}
	for len(b) > 0 {
		n := min(len(b), remote.MessageBytes)
		r.chunk.Piece, r.chunk.PieceEnd = b[:n], n == len(b)
		if err := r.flush(); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (r *reader) flush() error {
	r.chunk.Clock = r.v.s.clock.Read()
	err := r.stream.Send(r.chunk)
	r.chunk, r.size = &ringpb.Chunk{}, 0
	return err
}

// maxKeys bounds one Fetch.
const maxKeys = 1024

func (v *server) Fetch(req *ringpb.FetchRequest,
	stream grpc.ServerStreamingServer[ringpb.Chunk]) error {
	if len(req.Keys) > maxKeys {
		return v.refuse(codes.InvalidArgument, "too_large", ErrTooLarge)
	}
	if !v.enter(stream.Context()) {
		return v.refuse(codes.ResourceExhausted, "busy", errors.New("too many streams"))
	}
	defer v.leave()
	v.s.clock.Hear(req.Clock)
	if err := v.fence(req.Base); err != nil {
		return err
	}
	out := v.reader(stream)
	for _, k := range req.Keys {
		key, partition := Key{Space: Space(k.Space), Place: string(k.Place),
			Name: string(k.Name)}, int(k.Partition)
		if err := key.Check(); err != nil || partition >= disk.MaxPartitions {
			return v.refuse(codes.InvalidArgument, "garbage", errors.Join(ErrTooLarge, err))
		}
		records, err := v.s.localGet(key, partition)
		if err != nil {
			return v.refuse(codes.Internal, "disk", err)
		}
		if err := out.add(records); err != nil {
			return err
		}
	}
	return out.end(req.Base)
}

func (v *server) List(req *ringpb.ListRequest,
	stream grpc.ServerStreamingServer[ringpb.Chunk]) error {
	key, partition := Key{Space: Space(req.Space), Place: string(req.Place),
		Name: string(req.Prefix)}, int(req.Partition)
	if err := key.Check(); err != nil || partition >= disk.MaxPartitions {
		return v.refuse(codes.InvalidArgument, "garbage", errors.Join(ErrTooLarge, err))
	}
	if !v.enter(stream.Context()) {
		return v.refuse(codes.ResourceExhausted, "busy", errors.New("too many streams"))
	}
	defer v.leave()
	v.s.clock.Hear(req.Clock)
	if err := v.fence(req.Base); err != nil {
		return err
	}
	out := v.reader(stream)
	if req.HaveCount > 0 {
		var have placeSum
		err := v.s.localList(key, partition, true, have.add)
		if err != nil {
			return v.refuse(codes.Internal, "disk", err)
		}
		if have.sum == req.Have && have.count == req.HaveCount {
			out.chunk.Same = true
			return out.end(req.Base)
		}
	}
	if err := v.s.localList(key, partition, req.KeysOnly, out.add); err != nil {
		return err
	}
	return out.end(req.Base)
}

func (v *server) Scan(req *ringpb.ScanRequest,
	stream grpc.ServerStreamingServer[ringpb.Chunk]) error {
	v.s.clock.Hear(req.Clock)
	if err := v.s.withheld(); err != nil {
		return v.refuse(codes.Unavailable, "refilling", err)
	}
	if len(req.Partitions) > disk.MaxPartitions || len(req.Cells) > disk.MaxPartitions {
		return v.refuse(codes.InvalidArgument, "too_large", ErrTooLarge)
	}
	if !v.enter(stream.Context()) {
		return v.refuse(codes.ResourceExhausted, "busy", errors.New("too many streams"))
	}
	defer v.leave()
	if err := v.fence(req.Base); err != nil {
		return err
	}
	out := v.reader(stream)
	var err error
	switch {
	case req.Held:
		wanted := partitionSet(req.Partitions)
		err = v.s.disk.Held(func(k Key, p int) bool {
			return wanted[p] && (req.Space == 0 || k.Space == Space(req.Space)) &&
				hasPrefix(k.Name, req.Prefix)
		}, out.add)
	case len(req.Cells) > 0:
		cells := make([]disk.CellID, len(req.Cells))
		for i, c := range req.Cells {
			cells[i] = disk.CellID{Bucket: c.Bucket, Space: Space(c.Space),
				Partition: uint16(c.Partition)}
		}
		err = v.s.disk.ScanCells(cells, req.KeysOnly, out.add)
	default:
		partitions := make([]int, len(req.Partitions))
		for i, p := range req.Partitions {
			partitions[i] = int(p)
		}
		err = v.s.disk.Scan(Space(req.Space), partitions, disk.Begins(string(req.Prefix)),
			req.KeysOnly, out.add)
	}
	if err != nil {
		return err
	}
	return out.end(req.Base)
}

func hasPrefix(name string, prefix []byte) bool {
	return len(name) >= len(prefix) && name[:len(prefix)] == string(prefix)
}

func partitionSet(list []uint32) map[int]bool {
	set := make(map[int]bool, len(list))
	for _, p := range list {
		set[int(p)] = true
	}
	return set
}

func (v *server) Digest(ctx context.Context, req *ringpb.DigestRequest) (*ringpb.DigestReply,
	error) {
	v.s.clock.Hear(req.Clock)
	if err := v.s.withheld(); err != nil {
		return nil, v.refuse(codes.Unavailable, "refilling", err)
	}
	select {
	case <-v.s.disk.Counted():
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-v.s.closed:
		return nil, v.refuse(codes.Unavailable, "closing", ErrClosed)
	}
	if err := v.fence(req.Base); err != nil {
		return nil, err
	}
	epoch := v.s.knownEpoch(ctx)
	reply := &ringpb.DigestReply{Epoch: epoch, Clock: v.s.clock.Read()}
	if epoch < req.Epoch {
		return reply, nil
	}
	var wanted map[int]bool
	if len(req.Partitions) > 0 {
		wanted = partitionSet(req.Partitions)
	}
	for _, x := range v.s.disk.Digest(Space(req.Space), wanted, req.ByCell) {
		reply.Cells = append(reply.Cells, &ringpb.Cell{
			Bucket: x.Bucket, Space: uint32(x.Space), Partition: uint32(x.Partition), Sum: x.Sum,
			Count: uint64(x.Count),
		})
	}
	for _, p := range v.s.disk.HeldPartitions() {
		if wanted == nil || wanted[p] {
			reply.Held = append(reply.Held, uint32(p))
		}
	}
	return reply, nil
}

func (v *server) Status(ctx context.Context, req *ringpb.StatusRequest) (*ringpb.StatusReply,
	error) {
	v.s.clock.Hear(req.Clock)
	if req.Epoch > v.s.knownEpoch(ctx) {
		v.s.wake()
	}
	return v.s.status(), nil
}

// Ask answers another master.
func (v *server) Ask(req *ringpb.AskRequest,
	stream grpc.ServerStreamingServer[ringpb.Verdicts]) error {
	if !v.enter(stream.Context()) {
		return v.refuse(codes.ResourceExhausted, "busy", errors.New("too many streams"))
	}
	defer v.leave()
	v.s.clock.Hear(req.Clock)
	if req.Epoch > v.s.knownEpoch(stream.Context()) {
		v.s.wake()
	}
	err := v.s.query.Answer(stream.Context(), req, stream.Send)
	switch {
	case errors.Is(err, ErrTooLarge):
		return v.refuse(codes.InvalidArgument, "too_large", err)
	case errors.Is(err, query.ErrQuestion):
		return v.refuse(codes.InvalidArgument, "garbage", err)
	case errors.Is(err, errRefilling):
		return v.refuse(codes.Unavailable, "refilling", err)
	case errors.Is(err, query.ErrTooCostly):
		return v.refuse(query.CodeTooCostly, "too_costly", err)
	case errors.Is(err, ErrClosed):
		return v.refuse(codes.Unavailable, "closing", err)
	case stream.Context().Err() != nil:
		return status.FromContextError(stream.Context().Err()).Err()
	}
	return err
}
