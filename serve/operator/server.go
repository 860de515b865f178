package operator

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"clustermaster/salt/gather"
	"clustermaster/serve/acl"
	"clustermaster/serve/operator/operatorpb"
	"clustermaster/serve/unixsock"
	"clustermaster/value"
)

// SocketName is the file below sock_dir.
const SocketName = "clustermaster.sock"

const (
	maxMessage = 256 << 20 // of an answer: one return, one event, a part of a result
	maxRequest = 128 << 20 // of root and the master's user; see maxUserRequest
	maxStreams = 64        // calls at a time on one connection
	maxIDs     = 1 << 16   // of one ReadReturns
	partBytes  = 16 << 20  // a larger result travels in parts of so many bytes
	pageBytes  = 1 << 20   // of keys in one reply
	maxResult  = 1<<31 - 1
)

// Kinds of messages of a runner's call that the client itself handles.
const (
	kindPart   = "part" // a part of the result's value
	kindResult = "result"
)

// errTooLarge refuses a result that is too large for any client.
var errTooLarge = fmt.Errorf("more than %d bytes; ask for less at a time", maxResult)

// Minions publishes jobs and reads their returns.
type Minions interface {
	gather.Master
	// PublishAs publishes within rights; nil rights allow everything.
	PublishAs(ctx context.Context, p gather.Publish, rights *acl.Rights) (gather.Published, error)
	// Owner returns who published a job, and the back end of external_auth that knows him, "" if he
	// is a user of the system. Found is false for a job that was not published.
	Owner(ctx context.Context, jid string) (user, eauth string, found bool, err error)
	// Targets resolves a target among accepted minions.
	Targets(ctx context.Context, tgt any, tgtType, delimiter string) (Targeted, error)
	// Certain resolves a compound target of an access list to the accepted minions that certainly
	// match.
	Certain(ctx context.Context, compound string) ([]string, error)
}

// Keys lists and changes minion keys.
type Keys interface {
	// Lists reads all keys. Without texts their Pub is "".
	Lists(ctx context.Context, texts bool) (KeyLists, error)
	Change(ctx context.Context, c KeyChange) (KeysChanged, error)
}

// Runners runs runner and wheel functions on this master.
type Runners interface {
	Run(ctx context.Context, r RunRequest, out func(kind string, v any)) (RunResult, error)
	Docs(prefix string) value.Map
}

// Bus fires events.
type Bus interface {
	FireRawMap(tag string, data value.RawMap)
}

// Deps is what the service needs from the daemon.
type Deps struct {
	Minions  Minions
	Keys     Keys
	Runners  Runners
	Bus      Bus
	ACL      *acl.Rules // nil admits nobody but root and the master's user
	External External   // nil: external_auth is not configured
	Status   func() Status
	Log      *slog.Logger
	Reg      prometheus.Registerer // nil: no metrics
}

// Server is the operator's socket.
type Server struct {
	operatorpb.UnimplementedOperatorServer
	deps   Deps
	log    *slog.Logger
	path   string
	ln     net.Listener
	m      *metrics
	claims claims
	calls  perUser
	logins perUser
}

// Listen binds sockDir/clustermaster.sock for the user of this process, and with publisher_acl or
// external_auth for all users. It replaces a socket that no process listens on. A live one is an
// error.
func Listen(sockDir string, deps Deps) (*Server, error) {
	if deps.ACL == nil {
		deps.ACL = new(acl.Rules)
	}
	path := filepath.Join(sockDir, SocketName)
	ln, err := unixsock.Listen(path)
	if err != nil {
		return nil, err
	}
	s := &Server{deps: deps, log: deps.Log.With("component", "operator"), path: path, ln: ln,
		m:     newMetrics(deps.Reg),
		calls: perUser{each: maxCalls, all: maxCallsOfUsers}, logins: perUser{each: maxLogins}}
	if s.open() {
		if err := openTo(path); err != nil {
			ln.Close()
			return nil, err
		}
	}
	return s, nil
}

// openTo makes a socket connectable for all users. The kernel identifies them, and package acl
// decides what they may do.
func openTo(path string) error {
	dir, err := os.Stat(filepath.Dir(path))
	if err == nil && dir.Mode().Perm()&0o001 == 0 {
		err = os.Chmod(filepath.Dir(path), dir.Mode().Perm()|0o001)
	}
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if err != nil {
		return fmt.Errorf("open operator socket to other users: %w", err)
	}
	return nil
}

// Serve answers commands until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	ln := listen(s.ln, s.m)
	owners, users := s.server(grpc.MaxRecvMsgSize(maxRequest)), s.server(ofUsers...)
	stop := context.AfterFunc(ctx, owners.Stop)
	defer stop()
	var serving sync.WaitGroup
	serving.Go(func() { _ = users.Serve(ln.users) }) // it ends when ln has ended
	defer serving.Wait()
	defer users.Stop()
	if err := owners.Serve(ln); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve operator socket: %w", err)
	}
	return nil
}

// server returns a gRPC server of the service.
func (s *Server) server(opts ...grpc.ServerOption) *grpc.Server {
	srv := grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(peerCred{}), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Hour}),
		grpc.ConnectionTimeout(5 * time.Second),
	}, opts...)...)
	srv.RegisterService(s.admitting(), s)
	return srv
}

// admitting describes the service, with admit before each call. An interceptor would be too late
// for that: gRPC calls those of unary methods once it has received the whole request.
func (s *Server) admitting() *grpc.ServiceDesc {
	d := operatorpb.Operator_ServiceDesc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i, m := range d.Methods {
		d.Methods[i].Handler = func(srv any, ctx context.Context, receive func(any) error,
			_ grpc.UnaryServerInterceptor) (_ any, err error) {
			defer s.guard(m.MethodName, &err)
			leave, err := s.admit(ctx, "/"+d.ServiceName+"/"+m.MethodName)
			if err != nil {
				return nil, err
			}
			defer leave()
			return m.Handler(srv, ctx, func(req any) error { return bounded(ctx, receive, req) },
				nil)
		}
	}
	for i, m := range d.Streams {
		d.Streams[i].Handler = func(srv any, ss grpc.ServerStream) (err error) {
			defer s.guard(m.StreamName, &err)
			leave, err := s.admit(ss.Context(), "/"+d.ServiceName+"/"+m.StreamName)
			if err != nil {
				return err
			}
			defer leave()
			return m.Handler(srv, boundedStream{ss})
		}
	}
	return &d
}

// guard turns a panic of a call into an error: no user's order may end the master.
func (s *Server) guard(method string, err *error) {
	if p := recover(); p != nil {
		s.log.Error("command of a user panicked; please report this", "method", method, "err",
			fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s crashed: %v; the master's log has the details", method, p)
	}
}

func userOf(ctx context.Context) string {
	c, _ := callerOf(ctx)
	if id, is := c.external(); is {
		return id.Name
	}
	return c.Name
}

// NewJID implements the service.
func (s *Server) NewJID(ctx context.Context, _ *operatorpb.NewJIDRequest) (*operatorpb.NewJIDReply,
	error) {
	jid, err := s.deps.Minions.NewJID(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	if c, _ := callerOf(ctx); !c.super() {
		s.claims.add(jid, c.owner())
	}
	return &operatorpb.NewJIDReply{Jid: jid}, nil
}

// Publish implements the service.
func (s *Server) Publish(ctx context.Context,
	r *operatorpb.PublishRequest) (*operatorpb.PublishReply, error) {
	p := gather.Publish{TgtType: r.TgtType, Ret: r.Ret, JID: r.Jid, Timeout: seconds(r.Timeout),
		Patience: seconds(r.Patience)}
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
	var rights *acl.Rights
	var refusal string
	if p.User, rights, refusal = s.orderer(ctx, r.User, functions(p.Fun)); refusal != "" {
		return &operatorpb.PublishReply{Error: refusal}, nil
	}
	if err := s.mayUse(ctx, p.JID); err != nil {
		return nil, err
	}
	p.Kwargs = p.Kwargs.Without(credentialFields...)
	if c, _ := callerOf(ctx); rights != nil {
		if id, is := c.external(); is { // as in Salt's load, except for the credentials
			p.Kwargs = acl.Confirmed(p.Kwargs, id.Name, id.Eauth)
		}
	}
	out, err := s.deps.Minions.PublishAs(ctx, p, rights)
	if err != nil {
		return nil, asStatus(err)
	}
	return &operatorpb.PublishReply{Jid: out.JID, Minions: out.Minions, Missing: out.Missing,
		Error: out.Error, Incomplete: out.Incomplete}, nil
}

// credentialFields are options of a job that only this service may set.
var credentialFields = []string{"eauth", "username", "password", "token"}

// functions lists the functions of a job.
func functions(fun any) []string {
	if one, ok := fun.(string); ok {
		return []string{one}
	}
	several, _ := fun.([]string)
	return several
}

// Targets implements the service.
func (s *Server) Targets(ctx context.Context,
	r *operatorpb.TargetsRequest) (*operatorpb.TargetsReply, error) {
	tgt, err := textOrTexts(r.Tgt)
	if err != nil {
		return nil, badValue("target", err)
	}
	found, err := s.deps.Minions.Targets(ctx, tgt, r.TgtType, r.Delimiter)
	if err != nil {
		return nil, asStatus(err)
	}
	if err := s.maySee(ctx, found.Minions); err != nil {
		return nil, err
	}
	return &operatorpb.TargetsReply{Minions: found.Minions, Missing: found.Missing,
		Incomplete: found.Incomplete}, nil
}

// Events implements the service.
func (s *Server) Events(r *operatorpb.EventsRequest,
	stream grpc.ServerStreamingServer[operatorpb.Event]) error {
	if c, _ := callerOf(stream.Context()); !c.super() {
		if err := s.owns(stream.Context(), jobOf(r.Prefix)); err != nil {
			return err
		}
	}
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
			if err := stream.Send(&operatorpb.Event{Tag: e.Tag, Data: e.Data,
				Lost: e.Lost}); err != nil {
				return err
			}
		}
	}
}

// Fire implements the service. As with Salt's socket for events, a process of root or of the
// master's user may fire events, also after a Login, and no other may.
func (s *Server) Fire(ctx context.Context, r *operatorpb.FireRequest) (*operatorpb.FireReply,
	error) {
	if c, ok := callerOf(ctx); !ok || !c.owns() {
		return nil, status.Error(codes.PermissionDenied,
			"only root and the user of the salt-master may fire events")
	}
	data, err := value.UnpackRawMap(r.Data)
	if err != nil {
		return nil, badValue("event", err)
	}
	s.deps.Bus.FireRawMap(r.Tag, data)
	return new(operatorpb.FireReply), nil
}

// ReadReturns implements the service.
func (s *Server) ReadReturns(r *operatorpb.ReadReturnsRequest,
	stream grpc.ServerStreamingServer[operatorpb.Return]) error {
	ctx := stream.Context()
	if len(r.Ids) > maxIDs {
		return status.Errorf(codes.InvalidArgument, "%d ids at a time, at most %d", len(r.Ids),
			maxIDs)
	}
	if err := s.owns(ctx, r.Jid); err != nil {
		return err
	}
	// ReadReturns reads the next return when the caller has taken this one: gRPC blocks Send for a
	// slow caller.
	err := s.deps.Minions.ReadReturns(ctx, r.Jid, r.Ids, func(id string, ret gather.Return) error {
		return stream.Send(&operatorpb.Return{Id: id, Ret: ret.Return, Retcode: ret.Retcode,
			Success: ret.Success, Out: ret.Out})
	})
	if err != nil {
		return asStatus(err)
	}
	return nil
}

// Run implements the service.
func (s *Server) Run(r *operatorpb.RunRequest,
	stream grpc.ServerStreamingServer[operatorpb.RunOutput]) error {
	req := RunRequest{Fun: r.Fun, JID: r.Jid, Async: r.Async, User: userOf(stream.Context())}
	var err error
	if req.Args, err = list(r.Args); err != nil {
		return badValue("arguments", err)
	}
	if req.Kwargs, err = mapping(r.Kwargs); err != nil {
		return badValue("arguments", err)
	}
	if err := s.mayRun(stream.Context(), req); err != nil {
		return err
	}
	if err := s.mayUse(stream.Context(), req.JID); err != nil {
		return err
	}
	send := func(o *operatorpb.RunOutput, v any) error {
		packed, err := value.Pack(v)
		if err != nil {
			return status.Errorf(codes.Internal, "pack %s of %s: %v", o.Kind, r.Fun, err)
		}
		if o.Kind == kindResult {
			if len(packed) > maxResult {
				return status.Errorf(codes.ResourceExhausted, "send result of %s, %d bytes: %v",
					r.Fun, len(packed), errTooLarge)
			}
			for ; len(packed) > partBytes; packed = packed[partBytes:] {
				if err := stream.Send(&operatorpb.RunOutput{Kind: kindPart,
					Value: packed[:partBytes]}); err != nil {
					return err
				}
			}
		}
		o.Value = packed
		return stream.Send(o)
	}
	// A caller that disconnects ends the call through ctx. Its later prints are lost on purpose.
	res, err := s.deps.Runners.Run(ordering(stream.Context(), req.Fun), req,
		func(kind string, v any) { _ = send(&operatorpb.RunOutput{Kind: kind}, v) })
	if err != nil {
		return asStatus(err)
	}
	return send(&operatorpb.RunOutput{
		Kind: kindResult, Success: res.Success, Retcode: int32(res.Retcode),
		Outputter: res.Outputter, Jid: res.JID, NotRun: res.NotRun,
	}, res.Return)
}

// Docs implements the service.
func (s *Server) Docs(_ context.Context, r *operatorpb.DocsRequest) (*operatorpb.DocsReply, error) {
	packed, err := value.Pack(s.deps.Runners.Docs(r.Prefix))
	if err != nil {
		return nil, asStatus(err)
	}
	return &operatorpb.DocsReply{Docs: packed}, nil
}

// Keys implements the service.
func (s *Server) Keys(r *operatorpb.KeysRequest,
	stream grpc.ServerStreamingServer[operatorpb.KeysReply]) error {
	lists, err := s.deps.Keys.Lists(stream.Context(), !r.NoTexts)
	if err != nil {
		return asStatus(err)
	}
	reply := &operatorpb.KeysReply{Local: lists.Local, Note: lists.Note}
	for {
		n := page(lists.Keys)
		reply.Keys, lists.Keys = keysToPB(lists.Keys[:n]), lists.Keys[n:]
		if err := stream.Send(reply); err != nil || len(lists.Keys) == 0 {
			return err
		}
		reply = new(operatorpb.KeysReply)
	}
}

// page returns how many of the first keys fit into one reply: at least one if there are any.
func page(keys []Key) int {
	size := 0
	for i, k := range keys {
		if size += len(k.ID) + len(k.State) + len(k.Pub) + 16; size > pageBytes && i > 0 {
			return i
		}
	}
	return len(keys)
}

// ChangeKeys implements the service.
func (s *Server) ChangeKeys(ctx context.Context,
	r *operatorpb.ChangeKeysRequest) (*operatorpb.ChangeKeysReply, error) {
	s.log.Info("key change requested", "action", r.Action, "n", len(r.Keys), "user", userOf(ctx))
	done, err := s.deps.Keys.Change(ordering(ctx, "salt-key"), KeyChange{
		Action: r.Action, Keys: keysFromPB(r.Keys), PreserveMinions: r.PreserveMinions,
		KeepAESKey: r.KeepAesKey,
	})
	if err != nil {
		return nil, asStatus(err)
	}
	return &operatorpb.ChangeKeysReply{Changed: keysToPB(done.Changed),
		Warnings: done.Warnings}, nil
}

// Status implements the service.
func (s *Server) Status(context.Context, *operatorpb.StatusRequest) (*operatorpb.StatusReply,
	error) {
	st := s.deps.Status()
	return &operatorpb.StatusReply{Id: st.ID, Version: st.Version, Serving: st.Serving,
		Ready: st.Ready}, nil
}
