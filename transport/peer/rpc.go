package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	grpcpeer "google.golang.org/grpc/peer"
)

// identity is the pinned name of the other end of an RPC connection.
type identity struct {
	credentials.CommonAuthInfo
	node    string
	process process
}

func (identity) AuthType() string { return "clustermaster-node" }

// PeerNode names the member that made the RPC of ctx. ok is false if the call did not come through
// a Port.
func PeerNode(ctx context.Context) (node string, ok bool) {
	from, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return "", false
	}
	id, ok := from.AuthInfo.(identity)
	return id.node, ok
}

// nodeCredentials pass on the identity of connections whose hand-shake the port has already made.
type nodeCredentials struct{}

var _ credentials.TransportCredentials = nodeCredentials{}

func (nodeCredentials) ClientHandshake(_ context.Context, _ string, raw net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	return identify(raw)
}

func (nodeCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return identify(raw)
}

func (nodeCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c nodeCredentials) Clone() credentials.TransportCredentials { return c }
func (nodeCredentials) OverrideServerName(string) error           { return nil }

func identify(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := raw.(*conn)
	if !ok {
		raw.Close()
		return nil, nil, errors.New("identify peer: the connection is not one of the peer port")
	}
	return c, identity{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		node:           c.node,
		process:        c.process,
	}, nil
}

// ServerCredentials are for RPCListener only.
func (p *Port) ServerCredentials() credentials.TransportCredentials { return nodeCredentials{} }

// ServerOptions are the options of the gRPC server on RPCListener: credentials, limits, and pings
// that end a connection whose dialler has died or stopped.
func (p *Port) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(nodeCredentials{}),
		grpc.ConnectionTimeout(p.cfg.HandshakeTimeout),
		grpc.MaxRecvMsgSize(p.cfg.MaxMessage),
		grpc.MaxConcurrentStreams(4096),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Second,
			Timeout: 3 * time.Second}),
		grpc.ChainUnaryInterceptor(p.checkUnary),
		grpc.ChainStreamInterceptor(p.checkStream),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
	}
}

// Conn returns the client conn to a member. It is made at the first call and kept until Drop or the
// end of the port; callers do not close it. It dials automatically, to the present address in the
// member's record. While the peer is down (see Alive) calls fail at once with codes.Unavailable, as
// do those that were running when it went down. The error is ErrUnknownPeer, or that the port has
// closed.
func (p *Port) Conn(node string) (*grpc.ClientConn, error) {
	l, err := p.linkTo(node)
	if err != nil {
		return nil, fmt.Errorf("connect to peer %s: %w", node, err)
	}
	return l.rpc, nil
}

// newClient makes a client conn of l whose dials gap spaces out; it calls refused, if not nil, for
// those that found no listener.
func (p *Port) newClient(l *link, gap *backOff, refused func(),
	more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///peer", append(more,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
			error) {
			return p.dialLink(ctx, l, gap, refused)
		}),
		grpc.WithTransportCredentials(nodeCredentials{}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: grpcGap, Multiplier: 1, MaxDelay: grpcGap},
			MinConnectTimeout: p.cfg.HandshakeTimeout,
		}),
		// 10 s is the least that grpc-go allows; heartbeats do the fast work.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second,
			Timeout: 3 * time.Second, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(p.cfg.MaxMessage)),
	)...)
}

// newRPCClient is newClient with calls that fail fast while the peer is down, and that check both
// requests and answers for unknown fields.
func (p *Port) newRPCClient(l *link) (*grpc.ClientConn, error) {
	return p.newClient(l, l.rpcGap, nil,
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if err := p.mayCall(method); err != nil {
				return err
			}
			if err := l.failFast(); err != nil {
				return err
			}
			if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
				return err
			}
			return p.knownReply(reply)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc,
			cc *grpc.ClientConn, method string, open grpc.Streamer,
			opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if err := p.mayCall(method); err != nil {
				return nil, err
			}
			if err := l.failFast(); err != nil {
				return nil, err
			}
			s, err := open(ctx, desc, cc, method, opts...)
			if err != nil {
				return nil, err
			}
			return &checkedClientStream{s, p}, nil
		}),
	)
}
