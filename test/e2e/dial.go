package e2e

import (
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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

// sessions counts the established TCP connections at an IPv4 address and port of this machine.
func sessions(t testing.TB, addr string, port int) int {
	t.Helper()
	return len(established(t, 1, addr, port))
}

// connected reports whether one of a group of processes has an established TCP connection to an
// IPv4 address and port of this machine.
func connected(t testing.TB, group int, addr string, port int) bool {
	t.Helper()
	sockets := established(t, 2, addr, port)
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		link, err := os.Readlink(file)
		if err != nil || !slices.Contains(sockets, link) {
			return false
		}
		pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
		of, err := syscall.Getpgid(pid)
		return err == nil && of == group
	})
}

// established lists the sockets of established TCP connections by /proc/net/tcp, as /proc/PID/fd
// links to them. End is the column that is to be the address and port: 1 their own, 2 the other.
func established(t testing.TB, end int, addr string, port int) []string {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	ip := slices.Clone(net.ParseIP(addr).To4())
	slices.Reverse(ip) // the table shows the address in this machine's byte order
	wanted := strings.ToUpper(hex.EncodeToString(ip) + ":" +
		strconv.FormatInt(0x10000+int64(port), 16)[1:])
	const state, inode = 3, 9
	const isEstablished = "01"
	var sockets []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > inode && f[end] == wanted && f[state] == isEstablished {
			sockets = append(sockets, "socket:["+f[inode]+"]")
		}
	}
	return sockets
}
