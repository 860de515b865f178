package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/serve/acl"
	"clustermaster/serve/operator/operatorpb"
)

// forUsers are the methods that users of publisher_acl may call for jobs of their own, and the
// methods that authenticate a user of external_auth.
var forUsers = map[string]bool{
	operatorpb.Operator_Fire_FullMethodName:        true, // which refuses all but the owners
	operatorpb.Operator_Login_FullMethodName:       true,
	operatorpb.Operator_MakeToken_FullMethodName:   true,
	operatorpb.Operator_NewJID_FullMethodName:      true,
	operatorpb.Operator_Publish_FullMethodName:     true,
	operatorpb.Operator_Events_FullMethodName:      true,
	operatorpb.Operator_ReadReturns_FullMethodName: true,
	operatorpb.Operator_Status_FullMethodName:      true,
}

// forExternal are the methods that users of external_auth may call in addition, within their
// rights.
var forExternal = map[string]bool{operatorpb.Operator_Targets_FullMethodName: true,
	operatorpb.Operator_Run_FullMethodName: true}

// open reports whether users other than root and the master's user may connect.
func (s *Server) open() bool {
	return s.deps.ACL.Open() || s.deps.External != nil && s.deps.External.Open()
}

// admit admits root and the master's own user to everything, and with publisher_acl or
// external_auth all users to the methods in forUsers. It bounds the concurrent calls of users.
func (s *Server) admit(ctx context.Context, method string) (leave func(), err error) {
	c, ok := callerOf(ctx)
	_, external := c.external()
	if external {
		if err := s.stillValid(ctx, c); err != nil {
			return nil, err
		}
	}
	switch {
	case ok && c.super():
		return func() {}, nil
	case !ok || !s.open() || !forUsers[method] && !(external && forExternal[method]):
		s.m.refuse(whyRights)
		s.log.Warn("operator call refused: not root and not the master's user", "user", c.Name,
			"pid", c.PID, "method", method)
		return nil, status.Error(codes.PermissionDenied,
			"only root and the user of the salt-master may run this command")
	case !s.calls.enter(c.UID):
		s.m.refuse(whyCalls)
		return nil, status.Error(codes.ResourceExhausted,
			"too many commands of this user at a time; wait for some to end")
	}
	return func() { s.calls.leave(c.UID) }, nil
}

// orderer returns in whose name a caller orders functions, and with which rights; nil means all.
// Refusal is not empty if the order is refused.
func (s *Server) orderer(ctx context.Context, claimed string, funs []string) (user string,
	rights *acl.Rights, refusal string) {
	c, _ := callerOf(ctx)
	id, external := c.external()
	var err error
	if external {
		user = id.Name
		rights, err = s.deps.ACL.Confirmed(c.Name, id.Name, id.Rights, funs)
	} else {
		user, rights, err = s.deps.ACL.Orderer(acl.Caller{Name: c.Name, Super: c.super()},
			claimed, funs)
	}
	if err == nil {
		return user, rights, ""
	}
	why := "publisher_acl has nothing for this user"
	if errors.Is(err, acl.ErrBlacklisted) {
		why = "publisher_acl_blacklist"
	}
	s.log.Warn("order refused", "reason", why, "user", user, "caller", c.Name, "fun", funs)
	return user, nil, err.Error()
}

// Bounds of the job ids that were made for users. The oldest are forgotten.
const (
	maxClaims    = 256  // of one user
	maxClaimants = 1024 // users
)

// claims remember for whom a job id was made. A user subscribes to a job before it is published.
// Since he can't choose its id, it belongs to nobody else on any master.
type claims struct {
	mu     sync.Mutex          // guards the rest
	owners map[string]string   // by job id
	ids    map[string][]string // by owner, oldest first
	users  []string            // owners, the one with the latest claim last
}

// add notes for whom a job id was made.
func (c *claims) add(jid, owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners == nil {
		c.owners, c.ids = make(map[string]string), make(map[string][]string)
	}
	c.users = append(slices.DeleteFunc(c.users, func(u string) bool { return u == owner }), owner)
	if len(c.users) > maxClaimants {
		c.forget(c.users[0], len(c.ids[c.users[0]]))
		c.users = slices.Delete(c.users, 0, 1)
	}
	c.owners[jid] = owner
	c.ids[owner] = append(c.ids[owner], jid)
	c.forget(owner, len(c.ids[owner])-maxClaims)
}

// forget drops the n oldest claims of a user.
func (c *claims) forget(owner string, n int) {
	if n <= 0 {
		return
	}
	for _, jid := range c.ids[owner][:n] {
		delete(c.owners, jid)
	}
	if c.ids[owner] = slices.Delete(c.ids[owner], 0, n); len(c.ids[owner]) == 0 {
		delete(c.ids, owner)
	}
}

// of returns the user that a job id was made for; "" if none.
func (c *claims) of(jid string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[jid]
}

var errNotYours = status.Error(codes.PermissionDenied, "this job is not yours")

// owns returns nil if a caller may see a job: his own, or one that he is about to publish under an
// id that was made for him.
func (s *Server) owns(ctx context.Context, jid string) error {
	c, _ := callerOf(ctx)
	if c.super() {
		return nil
	}
	if jid == "" {
		return errNotYours
	}
	user, eauth, found, err := s.deps.Minions.Owner(ctx, jid)
	if err != nil {
		return asStatus(err)
	}
	id, external := c.external()
	if !external { // names of external_auth are not names of the system
		id.Name = c.Name
	}
	if found && (user != id.Name || eauth != id.Eauth) || !found && s.claims.of(jid) != c.owner() {
		return errNotYours
	}
	return nil
}

// mayUse returns nil if a caller may order something under a job id; "" is one that the master
// makes.
func (s *Server) mayUse(ctx context.Context, jid string) error {
	if jid == "" {
		return nil
	}
	if c, _ := callerOf(ctx); s.claims.of(jid) != "" && s.claims.of(jid) != c.owner() {
		return status.Error(codes.AlreadyExists,
			"this id was made for another user's job; leave it to the master to make one")
	}
	return s.owns(ctx, jid)
}

// jobOf returns the id of the job whose events a prefix covers; "" if it covers more.
func jobOf(prefix string) string {
	rest, ok := strings.CutPrefix(prefix, "salt/job/")
	jid, inside, cut := strings.Cut(rest, "/")
	if !ok || !cut || inside != "" {
		return ""
	}
	return jid
}
