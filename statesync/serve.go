package statesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/statesync/syncpb"
	"clustermaster/transport/pace"
)

// Bounds of the service.
const (
	// masters that get contents at a time; others wait
	maxSends     = 4
	stepEvery    = 500 * time.Millisecond // between progress steps of a task
	acquaintance = 5 * time.Second        // time until this master can reach one that asks it
	silence      = pace.Silence           // time without a sign of life from another master
)

// RegisterRPC registers the service for other masters with the server behind the peer port, which
// admits members only.
func (s *Store) RegisterRPC(r grpc.ServiceRegistrar) {
	syncpb.RegisterSyncServer(r,
		&service{s: s})
}

type service struct {
	syncpb.UnimplementedSyncServer
	s *Store
}

// errNotOwn says that a master's roots are shared with others.
var errNotOwn = errors.New("this master may share its roots with others: set cluster_isolated_filesystem to True " +
	"if each master has its own roots; if they share a file system, there is nothing to sync")

// errCopying says that a master does not have all of its roots yet.
var errCopying = errors.New("this master is still copying its roots from another one; run the command there, or later")

// code maps an error to a code for the wire. The other side shows the text.
func code(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotOwn):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, errCopying):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Aborted, err.Error())
}

func (v *service) tree(n uint32) (*treeState, error) {
	if n == uint32(FileRoots) || n == uint32(PillarRoots) {
		return v.s.trees[Tree(n)], nil
	}
	return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("tree %d", n))
}

func sumFrom(b []byte) (s Sum, err error) {
	if len(b) != len(s) {
		return s, status.Error(codes.InvalidArgument, fmt.Sprintf("sum of %d bytes", len(b)))
	}
	copy(s[:], b)
	return s, nil
}

// Blobs implements syncpb.SyncServer.
func (v *service) Blobs(r *syncpb.BlobsRequest,
	stream grpc.ServerStreamingServer[syncpb.Piece]) error {
	if n := len(r.GetBlobs()); n == 0 || n > batchBlobs {
		return status.Error(codes.InvalidArgument,
			fmt.Sprintf("%d contents asked for, %d is the limit", n, batchBlobs))
	}
	if err := v.queue(stream); err != nil {
		return code(err)
	}
	defer func() { <-v.s.sends }()
	for i, b := range r.GetBlobs() {
		sum, err := sumFrom(b.GetSum())
		if err != nil {
			return err
		}
		if err := v.send(stream, uint32(i), sum, b.GetSize(), b.GetOffset()); err != nil {
			return code(err)
		}
	}
	return nil
}

// queue waits for a turn to send. Empty pieces show the receiver that this master is alive.
func (v *service) queue(stream grpc.ServerStreamingServer[syncpb.Piece]) error {
	tick := time.NewTicker(silence / 4)
	defer tick.Stop()
	for {
		select {
		case v.s.sends <- struct{}{}:
			return nil
		case <-tick.C:
			if err := stream.Send(&syncpb.Piece{}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// send sends one content and marks its last piece.
func (v *service) send(stream grpc.ServerStreamingServer[syncpb.Piece], index uint32, sum Sum, size,
	offset int64) error {
	missing := &syncpb.Piece{Index: index, Missing: true, End: true}
	f, err := v.s.blobs.open(sum)
	if errors.Is(err, fs.ErrNotExist) {
		return stream.Send(missing)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() != size || offset < 0 || offset > size {
		return stream.Send(missing)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	for {
		// don't reuse it: gRPC may still read it after Send
		piece := make([]byte, min(pieceSize, size-offset))
		if _, err := io.ReadFull(f, piece); err != nil {
			return err
		}
		offset += int64(len(piece))
		if err := v.s.rate.Wait(stream.Context(), len(piece)); err != nil {
			return err
		}
		if err := stream.Send(&syncpb.Piece{Index: index, Data: piece,
			End: offset == size}); err != nil {
			return err
		}
		v.s.met.sent.Add(float64(len(piece)))
		if offset == size {
			return nil
		}
	}
}

// work runs a task, sends its progress meanwhile, and sends its outcome as the last step.
func (v *service) work(stream grpc.ServerStreamingServer[syncpb.Step],
	task func(ctx context.Context, p *progress) (*syncpb.Step, error)) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	p := &progress{}
	type outcome struct {
		step *syncpb.Step
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		step, err := task(ctx, p)
		done <- outcome{step, err}
	}()
	tick := time.NewTicker(stepEvery)
	defer tick.Stop()
	var lost error
	for {
		select {
		case o := <-done:
			if o.err != nil || lost != nil {
				return code(errors.Join(lost, o.err))
			}
			o.step.Done = true
			return stream.Send(o.step)
		case <-tick.C:
			if lost != nil {
				continue
			}
			now := p.snapshot()
			if lost = stream.Send(&syncpb.Step{Bytes: now.Bytes, BytesTotal: now.BytesTotal,
				Items: now.Items, ItemsTotal: now.ItemsTotal}); lost != nil {
				cancel() // and wait for the task to end
			}
		}
	}
}

// meet waits briefly until this master can reach node, the caller, which may have just started.
func (v *service) meet(ctx context.Context, node string) {
	ctx, cancel := context.WithTimeout(ctx, acquaintance)
	defer cancel()
	tick := time.NewTicker(acquaintance / 100)
	defer tick.Stop()
	for !v.s.peers.Alive(node) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Hold implements syncpb.SyncServer.
func (v *service) Hold(r *syncpb.HoldRequest,
	stream grpc.ServerStreamingServer[syncpb.Step]) error {
	return v.offered(r, stream, func(ctx context.Context, t *treeState, sum Sum, from []string,
		p *progress) (*syncpb.Step, error) {
		_, err := v.s.hold(ctx, t, sum, r.GetSize(), from, p)
		return &syncpb.Step{}, err
	})
}

// Plan implements syncpb.SyncServer.
func (v *service) Plan(r *syncpb.HoldRequest,
	stream grpc.ServerStreamingServer[syncpb.Step]) error {
	return v.offered(r, stream, func(ctx context.Context, t *treeState, sum Sum, from []string,
		_ *progress) (*syncpb.Step, error) {
		m, err := v.s.fetchManifest(ctx, t, sum, r.GetSize(), from)
		if err != nil {
			return nil, err
		}
		report, err := v.s.rehearse(ctx, t, m, r.GetForce())
		if err != nil {
			return nil, err
		}
		return &syncpb.Step{Report: report.toWire()}, nil
	})
}

// offered runs a task with a manifest that another master offers. It lists the masters to fetch
// from, with the offering one first.
func (v *service) offered(r *syncpb.HoldRequest, stream grpc.ServerStreamingServer[syncpb.Step],
	task func(ctx context.Context, t *treeState, sum Sum, from []string, p *progress) (*syncpb.Step,
		error),
) error {
	t, err := v.tree(r.GetTree())
	if err != nil {
		return err
	}
	sum, err := sumFrom(r.GetManifest())
	if err != nil {
		return err
	}
	return v.work(stream, func(ctx context.Context, p *progress) (*syncpb.Step, error) {
		v.meet(ctx, r.GetFrom())
		return task(ctx, t, sum, v.s.sources(r.GetFrom()), p)
	})
}

// Install implements syncpb.SyncServer.
func (v *service) Install(r *syncpb.InstallRequest,
	stream grpc.ServerStreamingServer[syncpb.Step]) error {
	t, err := v.tree(r.GetTree())
	if err != nil {
		return err
	}
	return v.work(stream, func(ctx context.Context, p *progress) (*syncpb.Step, error) {
		report, err := v.s.installHead(ctx, t, r.GetSeq(), p)
		if err != nil {
			return nil, err
		}
		return &syncpb.Step{Report: report.toWire()}, nil
	})
}

// Live implements syncpb.SyncServer.
func (v *service) Live(r *syncpb.LiveRequest,
	stream grpc.ServerStreamingServer[syncpb.Step]) error {
	t, err := v.tree(r.GetTree())
	if err != nil {
		return err
	}
	if !v.s.opts.Isolated {
		return code(errNotOwn)
	}
	return v.work(stream, func(ctx context.Context, _ *progress) (*syncpb.Step, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.rec.copied {
			return nil, errCopying
		}
		m, err := v.s.capture(ctx, t.tree, "", true, t.rec, &Report{})
		if err != nil {
			return nil, err
		}
		b := m.Encode()
		sum, err := v.s.blobs.put(b)
		if err == nil {
			err = v.s.blobs.flush()
		}
		if err != nil {
			return nil, err
		}
		return &syncpb.Step{Manifest: sum[:], Size: int64(len(b))}, nil
	})
}

// Status implements syncpb.SyncServer.
func (v *service) Status(ctx context.Context, r *syncpb.StatusRequest) (*syncpb.StatusReply,
	error) {
	own, err := v.s.ownStatus(ctx, r.GetDrift())
	if err != nil {
		return nil, code(err)
	}
	reply := &syncpb.StatusReply{}
	for _, t := range own {
		reply.Trees = append(reply.Trees,
			&syncpb.TreeStatus{Report: t.Report.toWire(), Behind: t.Behind})
	}
	return reply, nil
}
