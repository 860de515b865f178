package operator

import (
	"context"
	"errors"
	"net"
	"os"
	"os/user"
	"strconv"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"clustermaster/serve/unixsock"
)

// Caller is the process at the other end of the unix socket, as identified by the kernel.
type Caller struct {
	UID  uint32
	PID  int32
	Name string // user name, or the number if the system has no name for it

	session  *session  // of the connection
	arriving *arriving // requests on it; nil for root and the master's user
}

// AuthType names the way the identity was learned.
func (Caller) AuthType() string { return "so_peercred" }

// super reports whether the caller is root or the master's own user, and has not logged in as
// another user.
func (c Caller) super() bool {
	_, another := c.external()
	return !another && c.owns()
}

// owns reports whether the caller's process belongs to root or the master's own user.
func (c Caller) owns() bool { return c.UID == 0 || c.UID == uint32(os.Geteuid()) }

// owner names the owner of a job: a user of the system or of external_auth.
func (c Caller) owner() string {
	if id, is := c.external(); is {
		return "external/" + id.Eauth + "/" + id.Name
	}
	return "user/" + c.Name
}

// source names the source of a caller's attempts to authenticate.
func (c Caller) source() string { return "uid " + strconv.FormatUint(uint64(c.UID), 10) }

// callerOf returns who made the call that ctx belongs to.
func callerOf(ctx context.Context) (Caller, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{}, false
	}
	c, ok := p.AuthInfo.(Caller)
	return c, ok
}

// callerAt asks the kernel for the process at the other end.
func callerAt(c *net.UnixConn, m *metrics) (Caller, error) {
	cred, err := unixsock.Peer(c)
	if err != nil {
		return Caller{}, err
	}
	caller := Caller{UID: cred.Uid, PID: cred.Pid, Name: strconv.Itoa(int(cred.Uid)),
		session: new(session)}
	if u, err := user.LookupId(caller.Name); err == nil {
		caller.Name = u.Username
	}
	if !caller.owns() {
		caller.arriving = newArriving(c, m)
	}
	return caller, nil
}

// peerCred is the transport credential of the socket: no encryption, the identity from the kernel.
type peerCred struct{}

var _ credentials.TransportCredentials = peerCred{}

func (peerCred) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	return c, Caller{}, nil
}

func (peerCred) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	known, ok := c.(*callerConn)
	if !ok {
		return nil, nil, errors.New("the caller can't be identified")
	}
	return c, known.caller, nil
}

func (peerCred) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "so_peercred"}
}
func (p peerCred) Clone() credentials.TransportCredentials { return p }
func (peerCred) OverrideServerName(string) error           { return nil }
