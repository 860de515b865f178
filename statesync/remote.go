package statesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"clustermaster/statesync/syncpb"
	"clustermaster/transport/pace"
)

// remote is another master's service.
type remote struct {
	node string
	rpc  syncpb.SyncClient
}

func (s *Store) remote(node string) (*remote, error) {
	conn, err := s.peers.Conn(node)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", idOf(node), err)
	}
	return &remote{node: node, rpc: syncpb.NewSyncClient(conn)}, nil
}

// idOf returns the id by which operators know a node.
func idOf(node string) string {
	id, _, _ := strings.Cut(node, "/")
	return id
}

// steps reads a stream to its last step, as pace.Last does.
func (r *remote) steps(ctx context.Context,
	start func(ctx context.Context) (grpc.ServerStreamingClient[syncpb.Step],
		error), show func(Progress)) (*syncpb.Step, error) {
	step, err := pace.Last(ctx, start, func(step *syncpb.Step) {
		if show != nil {
			show(Progress{Bytes: step.GetBytes(), BytesTotal: step.GetBytesTotal(),
				Items: step.GetItems(), ItemsTotal: step.GetItemsTotal()})
		}
	})
	if err != nil {
		return nil, r.wrap(ctx, err)
	}
	return step, nil
}

// wrap describes a failure of the other master in that master's words.
func (r *remote) wrap(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	} else if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	} else if st, ok := status.FromError(err); ok {
		return &remoteError{node: idOf(r.node), status: st}
	}
	return fmt.Errorf("%s: %w", idOf(r.node), err)
}

// remoteError is an error that another master answered.
type remoteError struct {
	node   string
	status *status.Status
}

func (e *remoteError) Error() string { return e.node + ": " + e.status.Message() }

// GRPCStatus lets status.Code find the code.
func (e *remoteError) GRPCStatus() *status.Status { return e.status }

func (r *remote) hold(ctx context.Context, req *syncpb.HoldRequest, show func(Progress)) error {
	_, err := r.steps(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[syncpb.Step],
		error) {
		return r.rpc.Hold(ctx, req)
	}, show)
	return err
}

func (r *remote) plan(ctx context.Context, req *syncpb.HoldRequest) (Report, error) {
	step, err := r.steps(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[syncpb.Step],
		error) {
		return r.rpc.Plan(ctx, req)
	}, nil)
	return reportFrom(step.GetReport(), r.node), err
}

func (r *remote) install(ctx context.Context, tree Tree, seq uint64, show func(Progress)) (Report,
	error) {
	req := &syncpb.InstallRequest{Tree: uint32(tree), Seq: seq}
	step, err := r.steps(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[syncpb.Step],
		error) {
		return r.rpc.Install(ctx, req)
	}, show)
	return reportFrom(step.GetReport(), r.node), err
}

// live asks for the other master's tree as it is now.
func (r *remote) live(ctx context.Context, tree Tree) (Sum, int64, error) {
	req := &syncpb.LiveRequest{Tree: uint32(tree)}
	step, err := r.steps(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[syncpb.Step],
		error) {
		return r.rpc.Live(ctx, req)
	}, nil)
	if err != nil {
		return Sum{}, 0, err
	}
	sum, err := sumFrom(step.GetManifest())
	return sum, step.GetSize(), err
}

func (r *remote) status(ctx context.Context, drift bool) ([]TreeStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	reply, err := r.rpc.Status(ctx, &syncpb.StatusRequest{Drift: drift})
	if err != nil {
		return nil, r.wrap(ctx, err)
	}
	var out []TreeStatus
	for _, t := range reply.GetTrees()[:min(len(reply.GetTrees()), 2)] {
		out = append(out, TreeStatus{Report: reportFrom(t.GetReport(), r.node),
			Behind: t.GetBehind()})
	}
	return out, nil
}
