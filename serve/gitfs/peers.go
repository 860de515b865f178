package gitfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/serve/gitfs/gitpb"
	"clustermaster/transport/pace"
)

// Bounds of requests between masters.
const (
	pieceSize  = 256 << 10
	maxAsked   = 50_000 // commits in one request
	signOfLife = 5 * time.Second
	silence    = pace.Silence // of another master that sends no sign of life
)

// RegisterRPC adds the service for other masters to the server behind the peer port.
func (s *Store) RegisterRPC(r grpc.ServiceRegistrar) { gitpb.RegisterGitServer(r, &service{s: s}) }

type service struct {
	gitpb.UnimplementedGitServer
	s *Store
}

var fullID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// asked finds the mirror of a request and checks its commits.
func (v *service) asked(key string, commits ...[]string) (*mirror, error) {
	m := v.s.mirrors[key]
	if m == nil {
		return nil, status.Error(codes.NotFound,
			"this master's configuration has no such remote; give all masters the same remotes")
	}
	for _, list := range commits {
		if len(list) > maxAsked {
			return nil, status.Error(codes.InvalidArgument, "too many commits")
		}
		for _, id := range list {
			if !fullID.MatchString(id) {
				return nil, status.Error(codes.InvalidArgument, "not a commit's id")
			}
		}
	}
	return m, nil
}

// Pack implements gitpb.GitServer.
func (v *service) Pack(r *gitpb.PackRequest, stream grpc.ServerStreamingServer[gitpb.Piece]) error {
	m, err := v.asked(r.GetMirror(), r.GetWant(), r.GetHave())
	if err != nil {
		return err
	}
	if lacking := m.lacks(r.GetWant()); len(lacking) > 0 {
		return status.Error(codes.FailedPrecondition, "this master lacks "+lacking[0])
	}
	return m.judge(stream.Context(),
		m.pack(stream.Context(), r.GetWant(), r.GetHave(), &pieces{v.s, stream}))
}

// pieces is a writer that sends in pieces.
type pieces struct {
	s      *Store
	stream grpc.ServerStreamingServer[gitpb.Piece]
}

func (p *pieces) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part := b[:min(len(b), pieceSize)]
		b = b[len(part):]
		if err := p.s.rate.Wait(p.stream.Context(), len(part)); err != nil {
			return 0, err
		}
		if err := p.stream.Send(&gitpb.Piece{Data: append([]byte(nil), part...)}); err != nil {
			return 0, err
		}
		p.s.moved.WithLabelValues("sent").Add(float64(len(part)))
	}
	return n, nil
}

// steps runs a task and sends signs of life while it runs.
func steps(stream grpc.ServerStreamingServer[gitpb.Step],
	task func(ctx context.Context) ([]*gitpb.Outcome, error)) error {
	type result struct {
		outcomes []*gitpb.Outcome
		err      error
	}
	done := make(chan result, 1)
	go func() {
		o, err := task(stream.Context())
		done <- result{o, err}
	}()
	tick := time.NewTicker(signOfLife)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			if r.err != nil {
				return status.Error(codes.Aborted, r.err.Error())
			}
			return stream.Send(&gitpb.Step{Done: true, Outcomes: r.outcomes})
		case <-tick.C:
			if err := stream.Send(&gitpb.Step{}); err != nil {
				return err
			}
		}
	}
}

// Hold implements gitpb.GitServer.
func (v *service) Hold(r *gitpb.HoldRequest, stream grpc.ServerStreamingServer[gitpb.Step]) error {
	m, err := v.asked(r.GetMirror(), r.GetCommits())
	if err != nil {
		return err
	}
	return steps(stream, func(ctx context.Context) ([]*gitpb.Outcome, error) {
		return nil, v.s.take(ctx, m, r.GetFrom(), r.GetCommits())
	})
}

// Update implements gitpb.GitServer.
func (v *service) Update(r *gitpb.UpdateRequest,
	stream grpc.ServerStreamingServer[gitpb.Step]) error {
	for _, key := range r.GetMirrors() {
		if _, err := v.asked(key); err != nil {
			return err
		}
	}
	if !v.s.with.Leading() {
		return status.Error(codes.FailedPrecondition,
			"this master no longer leads; try again")
	}
	return steps(stream, func(ctx context.Context) ([]*gitpb.Outcome, error) {
		var out []*gitpb.Outcome
		for key, o := range v.s.round(ctx, r.GetMirrors()) {
			one := &gitpb.Outcome{Mirror: key, Changed: o.Changed}
			if o.Err != nil {
				one.Error = o.Err.Error()
			}
			out = append(out, one)
		}
		return out, nil
	})
}

// Status implements gitpb.GitServer.
func (v *service) Status(context.Context, *gitpb.StatusRequest) (*gitpb.StatusReply, error) {
	out := &gitpb.StatusReply{}
	for _, key := range v.s.keys {
		m := v.s.mirrors[key]
		m.mu.Lock()
		one := &gitpb.Mirror{
			Mirror: key, Seq: m.seq, Error: m.fetched.Error, Failed: int64(m.fetched.Failed),
			Refused: m.fetched.Refused,
		}
		if !m.fetched.At.IsZero() {
			one.Tried = m.fetched.At.UnixNano()
		}
		if !m.fetched.Good.IsZero() {
			one.Good = m.fetched.Good.UnixNano()
		}
		m.mu.Unlock()
		out.Mirrors = append(out.Mirrors, one)
	}
	return out, nil
}

// PinJob implements gitpb.GitServer.
func (v *service) PinJob(ctx context.Context, r *gitpb.PinJobRequest) (*gitpb.PinJobReply, error) {
	limit := time.Duration(r.GetLimitMs()) * time.Millisecond
	if r.GetJid() == "" || len(r.GetMinions()) > maxMinions || limit <= 0 || limit > maxJobLimit {
		return nil, status.Error(codes.InvalidArgument, "no job, too many minions or no good limit")
	}
	return &gitpb.PinJobReply{Known: v.s.jobs.pinSoon(ctx, r.GetView(), r.GetJid(), r.GetMinions(),
		limit)}, nil
}

// NoteJob implements gitpb.GitServer.
func (v *service) NoteJob(_ context.Context, r *gitpb.NoteJobRequest) (*gitpb.NoteJobReply, error) {
	v.s.jobs.note(r.GetWhat(), r.GetMinion(), r.GetJid(), time.Now())
	return &gitpb.NoteJobReply{}, nil
}

// patient reads a stream to its last step, as pace.Last does.
func patient(ctx context.Context,
	start func(context.Context) (grpc.ServerStreamingClient[gitpb.Step],
		error)) (*gitpb.Step, error) {
	step, err := pace.Last(ctx, start, nil)
	if st, ok := status.FromError(err); err != nil && ok {
		return nil, errors.New(st.Message())
	}
	return step, err
}

// hold asks another master to store commits that this one has.
func (s *Store) hold(ctx context.Context, node, key string, commits []string) error {
	c, err := s.client(node)
	if err != nil {
		return err
	}
	_, err = patient(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[gitpb.Step],
		error) {
		return c.Hold(ctx, &gitpb.HoldRequest{Mirror: key, Commits: commits, From: s.peers.Self()})
	})
	if err != nil {
		return fmt.Errorf("%s: %w", node, err)
	}
	return nil
}

// take fetches missing commits from another master.
func (s *Store) take(ctx context.Context, m *mirror, from string, commits []string) error {
	lacking := m.lacks(commits)
	if len(lacking) == 0 {
		return nil
	}
	if m.complete(ctx, lacking) == nil {
		return nil // fetched when this master led
	}
	if err := s.opts.Low(); err != nil {
		return err
	}
	c, err := s.client(from)
	if err != nil {
		return err
	}
	ctx, quiet, stop := pace.Quiet(ctx, 3*silence,
		fmt.Errorf("%s sent nothing for %v", from, 3*silence))
	defer stop()
	stream, err := c.Pack(ctx, &gitpb.PackRequest{Mirror: m.key, Want: lacking, Have: m.haves()})
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	var sent atomic.Pointer[error] // why the pack ended; nil within: it is whole
	go func() {
		for {
			p, err := stream.Recv()
			if err == nil {
				quiet.Reset(3 * silence)
				s.moved.WithLabelValues("received").Add(float64(len(p.GetData())))
				_, err = w.Write(p.GetData())
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				} else if st, ok := status.FromError(err); ok {
					err = fmt.Errorf("%s: %s", from, st.Message())
				}
				sent.Store(&err)
				_ = w.CloseWithError(err)
				return
			}
		}
	}()
	err = m.take(ctx, r, lacking)
	_ = r.CloseWithError(io.ErrClosedPipe)
	switch end := sent.Load(); {
	case err == nil || end == nil:
		return err
	case *end != nil: // git knows only that it got no more
		return *end
	default:
		return m.judge(ctx, err)
	}
}

// maxHaves bounds the commits that a master lists as its own; more only makes packs smaller.
const maxHaves = 2000

func (m *mirror) haves() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for id := range m.held {
		if len(out) == maxHaves {
			break
		}
		out = append(out, id)
	}
	return out
}

// catchUp fetches missing agreed commits of a mirror from the masters that have them. The caller
// has the place m.working.
func (s *Store) catchUp(ctx context.Context, m *mirror) {
	err := s.gather(ctx, m, s.with.Tables()[m.key].commits())
	if err != nil && ctx.Err() == nil {
		s.once("agreed commits are not here yet; trying again", m.key+err.Error(), "remote",
			m.remote.Label(), "err", err)
	}
	s.adopt()
}

// Update makes the leader fetch remotes now: those with the keys, or all without keys.
func (s *Store) Update(ctx context.Context, keys []string) (map[string]Outcome, error) {
	if len(keys) == 0 {
		keys = s.keys
	}
	if s.with.Leading() {
		return s.round(ctx, keys), nil
	}
	node, ok := s.with.Leader()
	if !ok || s.peers == nil {
		return nil, errors.New("the cluster has no leader now; try again")
	}
	c, err := s.client(node)
	if err != nil {
		return nil, err
	}
	done, err := patient(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[gitpb.Step],
		error) {
		return c.Update(ctx, &gitpb.UpdateRequest{Mirrors: keys})
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", node, err)
	}
	out := make(map[string]Outcome)
	for _, o := range done.GetOutcomes() {
		one := Outcome{Changed: o.GetChanged()}
		if o.GetError() != "" {
			one.Err = errors.New(o.GetError())
		}
		out[o.GetMirror()] = one
	}
	return out, s.with.Refresh(ctx)
}

// client returns the client of another master's service.
func (s *Store) client(node string) (gitpb.GitClient, error) {
	conn, err := s.peers.Conn(node)
	if err != nil {
		return nil, err
	}
	return gitpb.NewGitClient(conn), nil
}
