package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Caller is who holds the other end of the unix socket, as the kernel says.
type Caller struct {
	UID  uint32
	PID  int32
	Name string // user name, or the number where the system knows none
}

// AuthType names the way the identity was learned.
func (Caller) AuthType() string { return "so_peercred" }

// CallerOf returns who made the call that ctx belongs to.
func CallerOf(ctx context.Context) (Caller, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{}, false
	}
	c, ok := p.AuthInfo.(Caller)
	return c, ok
}

// peerCred is the transport credential of the socket: no encryption, the
// identity from the kernel.
type peerCred struct{}

var _ credentials.TransportCredentials = peerCred{}

func (peerCred) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, Caller{}, nil
}

func (peerCred) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, nil, errors.New("read peer credentials: not a unix socket")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, nil, fmt.Errorf("read peer credentials: %w", err)
	}
	if credErr != nil {
		return nil, nil, fmt.Errorf("read peer credentials: %w", credErr)
	}
	caller := Caller{UID: cred.Uid, PID: cred.Pid, Name: strconv.Itoa(int(cred.Uid))}
	if u, err := user.LookupId(caller.Name); err == nil {
		caller.Name = u.Username
	}
	return c, caller, nil
}

func (peerCred) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "so_peercred"}
}
func (p peerCred) Clone() credentials.TransportCredentials { return p }
func (peerCred) OverrideServerName(string) error           { return nil }
