package peer

import (
	"net"

	"golang.org/x/sys/unix"
)

// setUserTimeout sets TCP_USER_TIMEOUT. If the kernel refuses it, the slower keep-alive does the
// work.
func setUserTimeout(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	rc, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(userTimeout.Milliseconds()))
	})
}
