//go:build !linux

package peer

import "net"

// setUserTimeout has no equal here; keep-alive does the work, more slowly.
func setUserTimeout(net.Conn) {}
