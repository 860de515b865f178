package e2e

import (
	"encoding/hex"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dial returns nil if something accepts connections there.
func dial(addr string, port int) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(addr, strconv.Itoa(port)), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// sessions counts the established TCP connections at an IPv4 address and port of this machine, by
// /proc/net/tcp.
func sessions(t testing.TB, addr string, port int) int {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	ip := slices.Clone(net.ParseIP(addr).To4())
	slices.Reverse(ip) // the table shows the address in this machine's byte order
	local := strings.ToUpper(hex.EncodeToString(ip) + ":" + strconv.FormatInt(0x10000+int64(port),
		16)[1:])
	const established = "01"
	n := 0
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == local && f[3] == established {
			n++
		}
	}
	return n
}
