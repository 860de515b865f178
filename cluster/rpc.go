package cluster

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
	"clustermaster/transport/peer"
)

// RegisterRPC registers the service that other members call with the server behind the peer port.
func (n *Node) RegisterRPC(s grpc.ServiceRegistrar) {
	clusterpb.RegisterClusterServer(s, &service{n: n})
}

type service struct {
	clusterpb.UnimplementedClusterServer
	n *Node
}

// caller names the calling member. The port admits only members; this checks a second time.
func (s *service) caller(ctx context.Context) (string, error) {
	node, ok := peer.PeerNode(ctx)
	if !ok {
		return "", status.Error(codes.PermissionDenied,
			"the cluster service is for members, through the peer port")
	}
	return node, nil
}

// code gives errors of the leader's work the codes that withLeader knows.
func code(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLost):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, errElsewhere):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Internal, err.Error())
}

func (s *service) Propose(ctx context.Context,
	r *clusterpb.ProposeRequest) (*clusterpb.ProposeReply, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	// A command that this master can't read, or that is above the cluster's level, must not get
	// into the log: it would stop every member whose release is as old.
	c, err := fsm.Decode(r.GetCommand())
	if err == nil {
		err = s.n.withinLevel(fsm.Needs(c))
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	result, index, err := s.n.applyHere(ctx, r.GetCommand())
	if err != nil {
		return nil, code(err)
	}
	b, err := fsm.EncodeResult(result)
	if err != nil {
		return nil, code(err)
	}
	return &clusterpb.ProposeReply{Index: index, Result: b}, nil
}

func (s *service) ReadIndex(ctx context.Context,
	_ *clusterpb.ReadIndexRequest) (*clusterpb.ReadIndexReply, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	index, err := s.n.readIndexHere(ctx)
	if err != nil {
		return nil, code(err)
	}
	return &clusterpb.ReadIndexReply{Index: index}, nil
}

func (s *service) WaitApplied(ctx context.Context,
	r *clusterpb.WaitAppliedRequest) (*clusterpb.WaitAppliedReply, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	if !s.n.joined() {
		// it catches up with everything acknowledged before it serves
		return &clusterpb.WaitAppliedReply{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	if err := s.n.machine.wait(ctx, r.GetIndex()); err != nil {
		return nil, code(err)
	}
	// Keys derived from the state count as applied only when they are in use.
	if err := s.n.refreshSecrets(); err != nil {
		return nil, code(err)
	}
	return &clusterpb.WaitAppliedReply{}, nil
}

func (s *service) Admit(ctx context.Context, r *clusterpb.AdmitRequest) (*clusterpb.JoinReply,
	error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	joiner, ok := fromPeer(r.GetJoiner())
	if !ok {
		return nil, status.Error(codes.InvalidArgument,
			fmt.Sprintf("joiner %q: not a member record", r.GetJoiner().GetId()))
	}
	reply, err := s.n.admitHere(ctx, joiner, max(int(r.GetJoiner().GetLevel()), level.Base),
		r.GetUuid())
	if err != nil {
		return nil, code(err)
	}
	return reply, nil
}

func (s *service) Transfer(ctx context.Context,
	r *clusterpb.TransferRequest) (*clusterpb.TransferReply, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	to, err := s.n.transferHere(ctx, r.GetTo(), r.GetNot())
	if err != nil {
		return nil, code(err)
	}
	return &clusterpb.TransferReply{To: to}, nil
}

func (s *service) Status(ctx context.Context, _ *clusterpb.StatusRequest) (*clusterpb.StatusReply,
	error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	leader, _ := s.n.Leader()
	check := s.n.checks.last()
	return &clusterpb.StatusReply{
		Applied: s.n.machine.applied.Load(), Term: s.n.Term(), Leader: leader,
		Serving: s.n.Serving(), Ready: s.n.Ready(), Version: s.n.cfg.Version,
		Sync:  toSyncStatus(s.n.syncState()),
		Level: uint32(level.Supported()), Now: s.n.cfg.Now().UnixMicro(),
		Backup: toSeconds(s.n.LastBackup()), Alarms: s.n.Alarms(), Checked: check.index,
		Checksum: []byte(check.sum), Extensions: s.n.extensions(),
	}, nil
}
