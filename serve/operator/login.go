package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/serve/operator/operatorpb"
	"clustermaster/value"
)

// External authenticates users of external_auth. A refusal is auth.ErrRefused.
type External interface {
	// Open reports whether it can authenticate anybody.
	Open() bool
	Authenticate(ctx context.Context, source string, creds value.Map) (auth.Identity, error)
	ByToken(ctx context.Context, token string) (auth.Identity, error)
	// MakeToken returns Salt's map of a new token.
	MakeToken(ctx context.Context, source string, creds value.Map) (value.Map, error)
}

// session is the identity that a connection has proved by external_auth, beside the one from the
// kernel.
type session struct {
	mu    sync.Mutex // guards the rest
	id    auth.Identity
	token string // the token that proved it; "": a password did
}

func (s *session) get() (id auth.Identity, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.token
}

func (s *session) set(id auth.Identity, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.token = id, token
}

// external returns the identity that a caller has proved; false if none.
func (c Caller) external() (auth.Identity, bool) {
	if c.session == nil {
		return auth.Identity{}, false
	}
	id, _ := c.session.get()
	return id, id.Rights != nil
}

// stillValid checks a token again, which may have expired or been deleted.
func (s *Server) stillValid(ctx context.Context, c Caller) error {
	id, token := c.session.get()
	if token == "" {
		return nil
	}
	now, err := s.deps.External.ByToken(ctx, token)
	if err != nil || now.Name != id.Name || now.Eauth != id.Eauth {
		return status.Error(codes.Unauthenticated, tokenRefused)
	}
	c.session.set(now, token)
	return nil
}

// Salt's texts.
const (
	tokenRefused = `Authentication failure of type "token" occurred.`
	eauthRefused = `Authentication failure of type "eauth" occurred for user %s.`
)

// Login implements the service. Root gets no more rights than anybody else with the same proof.
func (s *Server) Login(ctx context.Context, r *operatorpb.Credentials) (*operatorpb.LoginReply,
	error) {
	c, ok := callerOf(ctx)
	if !ok || c.session == nil || s.deps.External == nil {
		return new(operatorpb.LoginReply), nil
	}
	leave, err := s.mayTry(c)
	if err != nil {
		return nil, err
	}
	defer leave()
	var id auth.Identity
	if r.Token != "" {
		id, err = s.deps.External.ByToken(ctx, r.Token)
	} else {
		id, err = s.deps.External.Authenticate(ctx, c.source(), credentialsOf(r))
	}
	switch {
	case errors.Is(err, auth.ErrRefused):
		return new(operatorpb.LoginReply), nil
	case err != nil:
		return nil, asStatus(err)
	}
	c.session.set(id, r.Token)
	s.log.Info("user confirmed", "user", id.Name, "eauth", id.Eauth, "caller", c.Name)
	return &operatorpb.LoginReply{User: id.Name}, nil
}

// maxLogins bounds the concurrent attempts of one user of the system, so that nobody takes the
// turns of all others, or all turns of a name.
const maxLogins = 4

// mayTry counts an attempt to authenticate.
func (s *Server) mayTry(c Caller) (leave func(), err error) {
	if c.owns() {
		return func() {}, nil
	}
	if !s.logins.enter(c.UID) {
		s.m.refuse(whyLogins)
		return nil, status.Error(codes.ResourceExhausted,
			"too many attempts of this user at a time; wait for some to end")
	}
	return func() { s.logins.leave(c.UID) }, nil
}

func credentialsOf(r *operatorpb.Credentials) value.Map {
	return value.Map{{Key: "eauth", Value: r.Eauth}, {Key: "username", Value: r.Username},
		{Key: "password", Value: r.Password}}
}

// MakeToken implements the service.
func (s *Server) MakeToken(ctx context.Context,
	r *operatorpb.Credentials) (*operatorpb.MakeTokenReply, error) {
	c, ok := callerOf(ctx)
	if !ok || s.deps.External == nil {
		return new(operatorpb.MakeTokenReply), nil
	}
	leave, err := s.mayTry(c)
	if err != nil {
		return nil, err
	}
	defer leave()
	data, err := s.deps.External.MakeToken(ordering(ctx, "mk_token"), c.source(), credentialsOf(r))
	switch {
	case errors.Is(err, auth.ErrRefused):
		return new(operatorpb.MakeTokenReply), nil
	case err != nil:
		return nil, asStatus(err)
	}
	return &operatorpb.MakeTokenReply{Token: data.String("token")}, nil
}

// mayRun refuses a runner or wheel function that a user of external_auth may not call. Root and the
// master's user may call all.
func (s *Server) mayRun(ctx context.Context, r RunRequest) error {
	c, _ := callerOf(ctx)
	id, is := c.external()
	if !is {
		return nil // admit has admitted nobody else
	}
	var ok bool
	var err error
	if fun, wheel := strings.CutPrefix(r.Fun, "wheel."); wheel {
		ok, err = id.Rights.AllowWheel(fun, r.Args, r.Kwargs)
	} else {
		ok, err = id.Rights.AllowRunner(r.Fun, r.Args, r.Kwargs)
	}
	if ok || errors.Is(err, acl.ErrSyntax) { // no function has such a name, and the answer says so
		return nil
	}
	s.log.Warn("call refused by external_auth", "user", id.Name, "eauth", id.Eauth, "fun", r.Fun)
	text := fmt.Sprintf(eauthRefused, id.Name)
	if _, token := c.session.get(); token != "" {
		text = strings.Replace(text, `"eauth"`, `"token"`, 1)
	}
	return status.Error(codes.Unauthenticated, text)
}

// maySee refuses a target with minions that a user may not even ping: knowing which minions match
// reveals their grains and pillars.
func (s *Server) maySee(ctx context.Context, minions []string) error {
	c, _ := callerOf(ctx)
	id, is := c.external()
	if !is {
		return nil
	}
	where, err := id.Rights.Allow(ctx, acl.Order{Funs: []string{"test.ping"}, Minions: minions},
		s.deps.Minions.Certain)
	if err != nil {
		return asStatus(err)
	}
	if where == acl.Nowhere {
		return status.Error(codes.PermissionDenied, acl.NotAuthorized)
	}
	return nil
}
