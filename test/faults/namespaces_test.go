package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// namespaces gives each master its own network namespace. One bridge joins them; the test has an
// address on it too. A cut gives the sender a wrong hardware address for the receiver, so that
// frames get lost on the wire. A narrow line gives it the address of the receiver's second
// interface, behind a port of the bridge with a smaller MTU, which drops larger frames.
type namespaces struct {
	name   string // of the bridge; namespaces are named name-1, name-2, ...
	prefix string // of addresses, with its last dot
	mu     sync.Mutex
	cuts   map[[2]int]bool // and narrow ones
	hosts  int
}

// here is the test's own place on the bridge.
const here = 254

// newNamespaces fails if this process may not make namespaces, or if they can't reach each other.
func newNamespaces(t testing.TB, masters int) (*namespaces, error) {
	n := &namespaces{
		name:   fmt.Sprintf("cm%x", rand.Uint32()),
		prefix: fmt.Sprintf("10.%d.%d.", 64+rand.IntN(128), rand.IntN(256)),
		cuts:   map[[2]int]bool{}, hosts: masters,
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("make namespaces: not root")
	}
	t.Cleanup(n.remove)
	err := n.make()
	if err == nil {
		err = n.try()
	}
	return n, err
}

func (n *namespaces) make() error {
	if err := ip("link add " + n.name + " address " + mac(here) +
		" type bridge forward_delay 0"); err != nil {
		return err
	}
	if err := ip("addr add "+n.Host(here)+"/24 dev "+n.name,
		"link set "+n.name+" mtu 1500 up"); err != nil { // whatever its ports have
		return err
	}
	for i := 1; i <= n.hosts; i++ {
		ns, port := n.space(i), fmt.Sprintf("%s-%d", n.name, i)
		if err := ip(
			"netns add "+ns,
			"link add "+port+" type veth peer name eth0 address "+mac(i)+" netns "+ns,
			"link set "+port+" master "+n.name+" up",
			"-n "+ns+" link set lo up",
			"-n "+ns+" addr add "+n.Host(i)+"/24 dev eth0",
			"-n "+ns+" link set eth0 up gso_max_segs 1", // each packet for itself, as on a wire
			"link add "+port+"n type veth peer name eth1 address "+narrowMAC(i)+" netns "+ns,
			"link set "+port+"n master "+n.name+" mtu 1280 up",
			"-n "+ns+" link set eth1 up",
			"neigh replace "+n.Host(i)+" lladdr "+mac(i)+" dev "+n.name+" nud permanent",
			"-n "+ns+" neigh replace "+n.Host(here)+" lladdr "+mac(here)+" dev eth0 nud permanent",
		); err != nil {
			return err
		}
		for j := 1; j <= n.hosts; j++ {
			if j == i {
				continue
			}
			if err := n.neighbour(i, j, mac(j)); err != nil {
				return err
			}
		}
	}
	return nil
}

// try sends over the bridge: a firewall of the machine may forbid it.
func (n *namespaces) try() error {
	var ln net.Listener
	if err := n.inside(1, func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(n.Host(1), "0"))
		return err
	}); err != nil {
		return err
	}
	defer ln.Close()
	return n.inside(2, func() error {
		conn, err := net.DialTimeout("tcp", ln.Addr().String(), 2*time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// inside runs f at the place of a master.
func (n *namespaces) inside(i int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		file, err := os.Open("/run/netns/" + n.space(i))
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (n *namespaces) space(i int) string { return fmt.Sprintf("%s-%d", n.name, i) }

// Host implements e2e.Network.
func (n *namespaces) Host(i int) string { return fmt.Sprintf("%s%d", n.prefix, i) }

// Peer implements e2e.Network.
func (n *namespaces) Peer(i int) string { return n.Host(i) }

// Command implements e2e.Network.
func (n *namespaces) Command(i int, path string, args []string) (string, []string) {
	return "ip", append([]string{"netns", "exec", n.space(i), path}, args...)
}

func (n *namespaces) cutOneWay(t testing.TB, from, to int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[[2]int{from, to}] = true
	if err := n.neighbour(from, to, "02:00:00:00:ff:ff"); err != nil {
		t.Error(err)
	}
}

func (n *namespaces) narrow(t testing.TB, a, b int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, way := range [][2]int{{a, b}, {b, a}} {
		n.cuts[way] = true
		if err := n.neighbour(way[0], way[1], narrowMAC(way[1])); err != nil {
			t.Error(err)
		}
	}
}

func (n *namespaces) heal(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.cuts {
		if err := n.neighbour(c[0], c[1], mac(c[1])); err != nil {
			t.Error(err)
		}
	}
	clear(n.cuts)
}

// neighbour sets where host i sends frames for host j.
func (n *namespaces) neighbour(i, j int, to string) error {
	return ip("-n " + n.space(i) + " neigh replace " + n.Host(j) + " lladdr " + to +
		" dev eth0 nud permanent")
}

func mac(i int) string       { return fmt.Sprintf("02:00:00:00:00:%02x", i) }
func narrowMAC(i int) string { return fmt.Sprintf("02:00:00:00:01:%02x", i) }

func (n *namespaces) remove() {
	for i := 1; i <= n.hosts; i++ {
		_ = ip("netns del " + n.space(i)) // may not have been made
	}
	_ = ip("link del " + n.name)
}

func ip(commands ...string) error {
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", c, err, out)
		}
	}
	return nil
}
