package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"clustermaster/gather"
	"clustermaster/operator/operatorpb"
	"clustermaster/wire"
)

// SocketName is the file below sock_dir.
const SocketName = "clustermaster.sock"

const (
	maxMessage     = 256 << 20 // a runner's result may be large; a request is bounded by maxRequest
	maxRequest     = 128 << 20
	maxStreams     = 64  // calls at a time on one connection
	maxConnections = 512 // commands at a time
)

// Minions publishes jobs and reads their returns.
type Minions interface {
	gather.Master
	// Targets resolves a target among accepted minions.
	Targets(ctx context.Context, tgt any, tgtType, delimiter string) (Targeted, error)
}

// Keys lists and changes minion keys.
type Keys interface {
	Lists(ctx context.Context) (KeyLists, error)
	Change(ctx context.Context, c KeyChange) (KeysChanged, error)
}

// Runners runs runner and wheel functions on this master.
type Runners interface {
	Run(ctx context.Context, r RunRequest, out func(kind string, v any)) (RunResult, error)
	Docs(prefix string) wire.Map
}

// Deps is what the service asks of the daemon.
type Deps struct {
	Minions Minions
	Keys    Keys
	Runners Runners
	Status  func() Status
	Log     *slog.Logger
}

// Server is the operator's socket.
type Server struct {
	operatorpb.UnimplementedOperatorServer
	deps Deps
	log  *slog.Logger
	path string
	ln   net.Listener
}

// Listen binds sockDir/clustermaster.sock for the user of this process. A
// socket that nobody listens on any more is replaced; a live one is an error.
func Listen(sockDir string, deps Deps) (*Server, error) {
	path := filepath.Join(sockDir, SocketName)
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: another salt-master answers there; stop it or set another sock_dir", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace stale socket: %w", err)
	}
	old := unix.Umask(0o177) // nobody may connect between bind and chmod
	ln, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on operator socket: %w", err)
	}
	return &Server{deps: deps, log: deps.Log.With("component", "operator"), path: path, ln: ln}, nil
}

// Serve answers commands until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	srv := grpc.NewServer(
		grpc.Creds(peerCred{}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Hour}),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if err := s.admit(ctx); err != nil {
				return nil, err
			}
			return h(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if err := s.admit(ss.Context()); err != nil {
				return err
			}
			return h(srv, ss)
		}),
	)
	operatorpb.RegisterOperatorServer(srv, s)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	if err := srv.Serve(limitListener(s.ln, maxConnections)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve operator socket: %w", err)
	}
	return nil
}

// admit lets in root and the master's own user; nobody else is answered.
func (s *Server) admit(ctx context.Context) error {
	c, ok := CallerOf(ctx)
	if ok && (c.UID == 0 || c.UID == uint32(os.Geteuid())) {
		return nil
	}
	s.log.Warn("operator call refused: not root and not the master's user", "user", c.Name, "pid", c.PID)
	return status.Error(codes.PermissionDenied, "only root and the user of the salt-master may run this command")
}

func userOf(ctx context.Context) string {
	c, _ := CallerOf(ctx)
	return c.Name
}

// Publish implements the service.
func (s *Server) Publish(ctx context.Context, r *operatorpb.PublishRequest) (*operatorpb.PublishReply, error) {
	p := gather.Publish{TgtType: r.TgtType, Ret: r.Ret, JID: r.Jid, User: r.User, Timeout: seconds(r.Timeout), Patience: seconds(r.Patience)}
	if p.User == "" {
		p.User = userOf(ctx)
	}
	var err error
	if p.Tgt, err = textOrTexts(r.Tgt); err != nil {
		return nil, badValue("target", err)
	}
	if p.Fun, err = textOrTexts(r.Fun); err != nil {
		return nil, badValue("function", err)
	}
	if p.Arg, err = list(r.Arg); err != nil {
		return nil, badValue("arguments", err)
	}
	if p.Kwargs, err = mapping(r.Kwargs); err != nil {
		return nil, badValue("options", err)
	}
	out, err := s.deps.Minions.Publish(ctx, p)
	if err != nil {
		return nil, asStatus(err)
	}
	return &operatorpb.PublishReply{Jid: out.JID, Minions: out.Minions, Missing: out.Missing, Error: out.Error, Incomplete: out.Incomplete}, nil
}

// Targets implements the service.
func (s *Server) Targets(ctx context.Context, r *operatorpb.TargetsRequest) (*operatorpb.TargetsReply, error) {
	tgt, err := textOrTexts(r.Tgt)
	if err != nil {
		return nil, badValue("target", err)
	}
	found, err := s.deps.Minions.Targets(ctx, tgt, r.TgtType, r.Delimiter)
	if err != nil {
		return nil, asStatus(err)
	}
	return &operatorpb.TargetsReply{Minions: found.Minions, Missing: found.Missing, Incomplete: found.Incomplete}, nil
}

// Events implements the service.
func (s *Server) Events(r *operatorpb.EventsRequest, stream grpc.ServerStreamingServer[operatorpb.Event]) error {
	sub, err := s.deps.Minions.Subscribe(stream.Context(), r.Prefix)
	if err != nil {
		return asStatus(err)
	}
	defer sub.Close()
	if err := stream.Send(&operatorpb.Event{}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case e, ok := <-sub.C():
			if !ok {
				return status.Error(codes.Unavailable, "the master is stopping")
			}
			if err := stream.Send(&operatorpb.Event{Tag: e.Tag, Data: e.Data}); err != nil {
				return err
			}
		}
	}
}

// Returns implements the service.
func (s *Server) Returns(ctx context.Context, r *operatorpb.ReturnsRequest) (*operatorpb.ReturnsReply, error) {
	returns, err := s.deps.Minions.Returns(ctx, r.Jid)
	if err != nil {
		return nil, asStatus(err)
	}
	out := new(operatorpb.ReturnsReply)
	for id, ret := range returns {
		out.Returns = append(out.Returns, &operatorpb.Return{Id: id, Ret: ret.Return, Retcode: ret.Retcode, Success: ret.Success, Out: ret.Out})
	}
	return out, nil
}

// Run implements the service.
func (s *Server) Run(r *operatorpb.RunRequest, stream grpc.ServerStreamingServer[operatorpb.RunOutput]) error {
	req := RunRequest{Fun: r.Fun, JID: r.Jid, Async: r.Async, User: userOf(stream.Context())}
	var err error
	if req.Args, err = list(r.Args); err != nil {
		return badValue("arguments", err)
	}
	if req.Kwargs, err = mapping(r.Kwargs); err != nil {
		return badValue("arguments", err)
	}
	send := func(o *operatorpb.RunOutput, v any) error {
		if o.Value, err = wire.Pack(v); err != nil {
			return status.Errorf(codes.Internal, "pack %s of %s: %v", o.Kind, r.Fun, err)
		}
		return stream.Send(o)
	}
	// A caller that goes away ends the call through ctx; its prints are then lost on purpose.
	res, err := s.deps.Runners.Run(stream.Context(), req, func(kind string, v any) { _ = send(&operatorpb.RunOutput{Kind: kind}, v) })
	if err != nil {
		return asStatus(err)
	}
	return send(&operatorpb.RunOutput{
		Kind: "result", Success: res.Success, Retcode: int32(res.Retcode), Outputter: res.Outputter, Jid: res.JID, NotRun: res.NotRun,
	}, res.Return)
}

// Docs implements the service.
func (s *Server) Docs(_ context.Context, r *operatorpb.DocsRequest) (*operatorpb.DocsReply, error) {
	packed, err := wire.Pack(s.deps.Runners.Docs(r.Prefix))
	if err != nil {
		return nil, asStatus(err)
	}
	return &operatorpb.DocsReply{Docs: packed}, nil
}

// Keys implements the service.
func (s *Server) Keys(ctx context.Context, _ *operatorpb.KeysRequest) (*operatorpb.KeysReply, error) {
	lists, err := s.deps.Keys.Lists(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	return &operatorpb.KeysReply{Keys: keysToPB(lists.Keys), Local: lists.Local, Note: lists.Note}, nil
}

// ChangeKeys implements the service.
func (s *Server) ChangeKeys(ctx context.Context, r *operatorpb.ChangeKeysRequest) (*operatorpb.ChangeKeysReply, error) {
	s.log.Info("key change asked for", "action", r.Action, "n", len(r.Keys), "user", userOf(ctx))
	done, err := s.deps.Keys.Change(ctx, KeyChange{
		Action: r.Action, Keys: keysFromPB(r.Keys), PreserveMinions: r.PreserveMinions, KeepAESKey: r.KeepAesKey,
	})
	if err != nil {
		return nil, asStatus(err)
	}
	return &operatorpb.ChangeKeysReply{Changed: keysToPB(done.Changed), Warnings: done.Warnings}, nil
}

// Status implements the service.
func (s *Server) Status(context.Context, *operatorpb.StatusRequest) (*operatorpb.StatusReply, error) {
	st := s.deps.Status()
	return &operatorpb.StatusReply{Id: st.ID, Version: st.Version, Serving: st.Serving, Ready: st.Ready}, nil
}
