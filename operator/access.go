package operator

import (
	"context"
	"errors"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/acl"
	"clustermaster/operator/operatorpb"
)

// forUsers are the methods that users of publisher_acl may call: for jobs of their own.
var forUsers = map[string]bool{
	operatorpb.Operator_Publish_FullMethodName: true, operatorpb.Operator_Events_FullMethodName: true,
	operatorpb.Operator_ReadReturns_FullMethodName: true, operatorpb.Operator_Status_FullMethodName: true,
}

// admit lets in root and the master's own user, and with publisher_acl all users to what is forUsers, so many calls of each at a time.
func (s *Server) admit(ctx context.Context, method string) (leave func(), err error) {
	c, ok := callerOf(ctx)
	switch {
	case ok && c.super():
		return func() {}, nil
	case !ok || !s.deps.ACL.Open() || !forUsers[method]:
		s.log.Warn("operator call refused: not root and not the master's user", "user", c.Name, "pid", c.PID, "method", method)
		return nil, status.Error(codes.PermissionDenied, "only root and the user of the salt-master may run this command")
	case !s.calls.enter(c.UID):
		return nil, status.Error(codes.ResourceExhausted, "too many commands of this user at a time; wait for some to end")
	}
	return func() { s.calls.leave(c.UID) }, nil
}

// maxCalls bounds the calls of one user at a time.
const maxCalls = 64

// orderer tells in whose name a caller orders functions, and with which rights; nil are all. refusal is not empty if the order is
// refused.
func (s *Server) orderer(ctx context.Context, claimed string, funs []string) (user string, rights *acl.Rights, refusal string) {
	c, _ := callerOf(ctx)
	user, rights, err := s.deps.ACL.Orderer(acl.Caller{Name: c.Name, Super: c.super()}, claimed, funs)
	if err == nil {
		return user, rights, ""
	}
	why := "publisher_acl has nothing for this user"
	if errors.Is(err, acl.ErrBlacklisted) {
		why = "publisher_acl_blacklist"
	}
	s.log.Warn("order refused", "reason", why, "user", user, "fun", funs)
	return user, nil, err.Error()
}

// maxClaims bounds the jobs of users that are on their way; the oldest is forgotten.
const maxClaims = 4096

// claims remember who listens for a job that is not published yet, so that nobody else's job gets that id.
type claims struct {
	mu   sync.Mutex // guards the rest
	uids map[string]uint32
	ring [maxClaims]string
	next int
}

// take claims a job id. False: another user has it.
func (c *claims) take(jid string, uid uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if who, taken := c.uids[jid]; taken {
		return who == uid
	}
	if c.uids == nil {
		c.uids = make(map[string]uint32)
	}
	delete(c.uids, c.ring[c.next])
	c.ring[c.next] = jid
	c.next = (c.next + 1) % maxClaims
	c.uids[jid] = uid
	return true
}

// free tells whether nobody but uid has claimed a job id.
func (c *claims) free(jid string, uid uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	who, taken := c.uids[jid]
	return !taken || who == uid
}

var errNotYours = status.Error(codes.PermissionDenied, "this job is not yours")

// owns is nil if a caller may see a job: a user of publisher_acl one of his own, or one that he is about to publish.
func (s *Server) owns(ctx context.Context, jid string) error {
	c, _ := callerOf(ctx)
	if c.super() {
		return nil
	}
	if jid == "" {
		return errNotYours
	}
	owner, found, err := s.deps.Minions.Owner(ctx, jid)
	switch {
	case err != nil:
		return asStatus(err)
	case found && owner == c.Name, !found && s.claims.take(jid, c.UID):
		return nil
	}
	return errNotYours
}

// jobOf is the id of the job whose events a prefix means, empty if it means more.
func jobOf(prefix string) string {
	rest, ok := strings.CutPrefix(prefix, "salt/job/")
	jid, inside, cut := strings.Cut(rest, "/")
	if !ok || !cut || inside != "" {
		return ""
	}
	return jid
}
