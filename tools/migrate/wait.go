package migrate

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/config"
	"clustermaster/serve/operator"
)

const (
	// settle is how long commands that run may go on before this master stops.
	settle = 1500 * time.Millisecond
	// backAfter bounds the wait for minions that connect again. By default one tries 1 to 22 s
	// after its connection has ended.
	backAfter = 30 * time.Second
)

// hold makes commands that begin from now on wait for the next master, until the returned function
// is called.
func (m *migration) hold(o *config.Options) func() {
	if err := operator.StartMoving(o.SockDir); err != nil {
		m.say("note     %v; commands in the next seconds fail", err)
	}
	return func() { operator.StopMoving(o.SockDir) }
}

// leaveSocket makes the file by which Salt's commands see a master, so that they wait for the next
// one. It is a socket that nobody reads: Salt's master replaces that, and fails at a plain file.
func leaveSocket(sock string) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix",
		Name: filepath.Join(sock, marks[0])})
	if err != nil {
		return // Salt's commands fail at once then
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
}

// back waits until as many connections as before lead to the publish port, and says how many do.
// Salt's master sends a job only to the minions that are connected.
func (m *migration) back(ctx context.Context, o *config.Options, before int) {
	addr := o.ListenAddr(o.PublishPort)
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	now := connections(addr)
	for ; now < before && time.Since(began) < backAfter; now = connections(addr) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	m.say("back     %d of %d connections of minions, %.1f s after it listened", now, before,
		time.Since(began).Seconds())
}

// connections counts the established connections to a listening address of this machine.
func connections(addr string) (n int) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	ip := net.ParseIP(host)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			local, is, ok := established(sc.Text())
			if ok && is == port && (ip == nil || ip.IsUnspecified() || ip.Equal(local)) {
				n++
			}
		}
		f.Close()
	}
	return n
}

// established reads a line of /proc/net/tcp (proc(5)): number, local address, remote address,
// state. ok is false for other states.
func established(line string) (local net.IP, port string, ok bool) {
	const state = "01"
	f := strings.Fields(line)
	if len(f) < 4 || f[3] != state {
		return nil, "", false
	}
	addr, hexPort, _ := strings.Cut(f[1], ":")
	b, err := hex.DecodeString(addr)
	number, failed := strconv.ParseUint(hexPort, 16, 16)
	if err != nil || failed != nil || len(b)%4 != 0 {
		return nil, "", false
	}
	for word := range slices.Chunk(b, 4) { // each in the order of a little-endian machine
		slices.Reverse(word)
	}
	return b, strconv.FormatUint(number, 10), true
}

// running reads the keys of the master that runs. The error is operator.ErrNoMaster if none does.
func (m *migration) running(ctx context.Context, o *config.Options) ([]operator.Key, error) {
	c, err := operator.Dial(ctx, o.SockDir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	lists, err := c.Lists(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	if lists.Note != "" {
		m.say("note     keys: %s", lists.Note)
	}
	return lists.Keys, nil
}
