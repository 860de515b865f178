package peer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"clustermaster/cluster/level"
)

// checkUnary and checkStream refuse requests with a field that this release does not know: it would
// drop the field, while the caller believes it was honoured.
func (p *Port) checkUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (_ any, err error) {
	defer p.guard(info.FullMethod, &err)
	if err := p.known(ctx, req, info.FullMethod); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

func (p *Port) checkStream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo,
	handle grpc.StreamHandler) (err error) {
	defer p.guard(info.FullMethod, &err)
	return handle(srv, &checkedServerStream{s, p, info.FullMethod})
}

// guard turns a panic of a call into an error. Masters ask each other the same question at once, so
// one question could end all of them.
func (p *Port) guard(method string, err *error) {
	if r := recover(); r != nil {
		p.cfg.Log.Error("call of another master panicked; please report this", "method", method, "err",
			fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s crashed: %v; the log of the master that was asked has the details",
			method, r)
	}
}

type checkedServerStream struct {
	grpc.ServerStream
	p      *Port
	method string
}

// RecvMsg implements grpc.ServerStream.
func (s *checkedServerStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.p.known(s.Context(), m, s.method)
}

// known checks a request.
func (p *Port) known(ctx context.Context, m any, method string) error {
	err := checkMessage(m)
	if err == nil {
		return nil
	}
	p.m.unknown.WithLabelValues("request").Inc()
	node, _ := PeerNode(ctx)
	if n := p.seldom.Due(logKind{callerOf(ctx), "unknown field"}); n > 0 {
		p.cfg.Log.Warn("request refused, nothing was changed; install the newer release here too, see docs/upgrade.md",
			"peer", node, "method", method, "n", n, "err", err)
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

func callerOf(ctx context.Context) source {
	if from, ok := grpcpeer.FromContext(ctx); ok && from.Addr != nil {
		return sourceOf(from.Addr)
	}
	return source{}
}

// knownReply checks an answer.
func (p *Port) knownReply(m any) error {
	err := checkMessage(m)
	if err == nil {
		return nil
	}
	p.m.unknown.WithLabelValues("reply").Inc()
	return status.Error(codes.Internal, err.Error())
}

func checkMessage(m any) error {
	if message, ok := m.(proto.Message); ok {
		return level.CheckMessage(message)
	}
	return nil
}

// mayCall refuses a method that members of the cluster's level need not have.
func (p *Port) mayCall(method string) error {
	if of := level.OfRPC(method); !p.atLevel(of) {
		return status.Errorf(codes.Unimplemented,
			"%s needs level %d, and the cluster is at level %d: upgrade all members first, see salt-run cluster.members",
			method, of, p.cfg.Level())
	}
	return nil
}

// atLevel reports whether all members of the cluster know what has a level.
func (p *Port) atLevel(of int) bool { return p.cfg.Level == nil || p.cfg.Level() >= of }

// checkedClientStream checks answers.
type checkedClientStream struct {
	grpc.ClientStream
	p *Port
}

// RecvMsg implements grpc.ClientStream.
func (s *checkedClientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		err = s.p.knownReply(m)
	}
	return err
}

// unmarshalKnown reads a frame of the join channel; a field that this release does not know gives
// an error.
func unmarshalKnown(b []byte, m proto.Message) error {
	return errors.Join(proto.Unmarshal(b, m), level.CheckMessage(m))
}
