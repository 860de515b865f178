//go:build !linux

package peer

import "net"

// setUserTimeout does nothing on this system; keep-alive does the work, more slowly.
func setUserTimeout(net.Conn) {}
