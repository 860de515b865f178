package e2e

import (
	"net"
	"strconv"
	"time"
)

// dial is nil when something accepts connections there.
func dial(addr string, port int) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(addr, strconv.Itoa(port)), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}
