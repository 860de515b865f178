package peer

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// childEnv marks a run of the test binary as a child master; its value is
// "<dir> <listen> <parent's spki in hex> <parent's address>".
const childEnv = "CLUSTERMASTER_PEER_TEST_CHILD"

// childMaster serves until its standard input ends. It pins the parent alone,
// and prints its own address and pin, then what it finds of the parent.
func childMaster() int {
	var dir, listen, parent, addr string
	if _, err := fmt.Sscan(os.Getenv(childEnv), &dir, &listen, &parent, &addr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	key, err := LoadNodeKey(dir, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	spki, err := hex.DecodeString(parent)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	pins := newMembers()
	pins.add("parent/00", [32]byte(spki), addr)
	p, err := New(Config{Listen: listen, Key: key, Pins: pins})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	srv := grpc.NewServer(p.ServerOptions()...)
	p.RegisterRPC(srv)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(p.RPCListener()) }()
	own := key.SPKI()
	fmt.Printf("%s %x\n", p.Addr(), own[:])
	p.OnUp(func(string) { fmt.Println("up") })
	p.OnDown(func(string) { fmt.Println("down") })
	p.Watch("parent/00")
	if err := p.Serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type child struct {
	cmd  *exec.Cmd
	addr string
	spki [32]byte
	out  *bufio.Reader // what it prints further
}

// startChild runs a child master that pins key; it is gone when the test ends.
func startChild(t *testing.T, dir, listen string, parent *master) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spki := parent.key.SPKI()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %x %s", childEnv, dir, listen, spki[:],
		parent.Addr()))
	cmd.Stderr = os.Stderr
	if _, err = cmd.StdinPipe(); err != nil { // closed at our end, which ends the child
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // ended already, perhaps
		_ = cmd.Wait()
	})
	out := bufio.NewReader(pipe)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("child said nothing: %v", err)
	}
	words := strings.Fields(line)
	b, err := hex.DecodeString(words[1])
	if err != nil {
		t.Fatal(err)
	}
	return &child{cmd: cmd, addr: words[0], spki: [32]byte(b), out: out}
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// within fails unless ok comes true in time; slack is for a loaded machine.
func within(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	const slack = 5 * time.Second
	begin := time.Now()
	eventually(t, what, ok)
	took := time.Since(begin)
	t.Logf("%s: %s", what, took.Round(time.Millisecond))
	if took > limit+slack {
		t.Errorf("%s took %s, want %s", what, took, limit)
	}
}

// A stopped process accepts connections and answers nothing: the hardest
// death. Then it goes on, is killed, and comes back as another process.
func TestStoppedAndKilledPeerIsNoticed(t *testing.T) {
	t.Parallel()
	pins := newMembers()
	m := newPort(t, pins, "m1/01")
	pins.add(m.node, m.key.SPKI(), m.Addr().String())
	dir := t.TempDir()
	// The child's port is free for a moment. On 127.0.0.1 clients of all tests of this machine have
	// their ports.
	other := startChild(t, dir,
		fmt.Sprintf("127.97.%d.%d:0", 1+rand.IntN(250), 1+rand.IntN(250)), m)
	const node = "m2/02"
	pins.add(node, other.spki, other.addr)
	var downs, ups atomic.Int32
	m.OnDown(func(n string) {
		if n == node {
			downs.Add(1)
		}
	})
	m.OnUp(func(n string) {
		if n == node {
			ups.Add(1)
		}
	})
	m.serve()
	m.Watch(node, "nobody/00")
	eventually(t, "heard of the child", func() bool { return m.Alive(node) })
	if m.LastHeard(node).IsZero() {
		t.Error("alive, but never heard")
	}
	cc, err := m.Conn(node)
	if err != nil {
		t.Fatal(err)
	}
	// A stream that is open when the peer stops.
	stream, err := healthpb.NewHealthClient(cc).Watch(context.Background(),
		&healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := stream.Recv(); ended <- err }()

	other.signal(t, syscall.SIGSTOP)
	within(t, "call in flight to a stopped peer failed", 2*time.Second, func() bool {
		select {
		case err := <-ended:
			if status.Code(err) != codes.Unavailable {
				t.Errorf("call in flight: %v, want Unavailable", err)
			}
			return true
		default:
			return false
		}
	})
	if m.Alive(node) {
		t.Error("a stopped peer is alive")
	}
	eventually(t, "OnDown", func() bool { return downs.Load() == 1 })
	if err := m.ping(node); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "has not answered since") { // it was not asked
		t.Errorf("call to a stopped peer: %v, want Unavailable at once", err)
	}

	other.signal(t, syscall.SIGCONT)
	within(t, "continued peer is alive", 2500*time.Millisecond,
		func() bool { return m.Alive(node) })
	eventually(t, "OnUp twice", func() bool { return ups.Load() == 2 })
	eventually(t, "calls go through again", func() bool { return m.ping(node) == nil })

	other.signal(t, syscall.SIGKILL)
	within(t, "killed peer is down", 1500*time.Millisecond, func() bool { return !m.Alive(node) })
	eventually(t, "OnDown twice", func() bool { return downs.Load() == 2 })

	startChild(t, dir, other.addr, m)
	within(t, "restarted peer is alive", 2500*time.Millisecond,
		func() bool { return m.Alive(node) })
	eventually(t, "calls reach the new process", func() bool { return m.ping(node) == nil })
}

// A master that was itself stopped wakes with every timer expired, and must
// not take its own sleep for the death of the others.
func TestStoppedMasterDoesNotBlameItsPeers(t *testing.T) {
	t.Parallel()
	pins := newMembers()
	m := newPort(t, pins, "m1/01")
	watcher := startChild(t, t.TempDir(), "127.0.0.1:0", m)
	const node = "m2/02"
	pins.add(node, watcher.spki, watcher.addr)
	m.serve()
	if line, err := watcher.out.ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	eventually(t, "heard of the child", func() bool { return m.Alive(node) })
	watcher.signal(t, syscall.SIGSTOP)
	eventually(t, "child is down", func() bool { return !m.Alive(node) })
	asleep := m.LastHeard(node)
	eventually(t, "child slept through its own limit",
		func() bool { return time.Since(asleep) > 3*time.Second })
	watcher.signal(t, syscall.SIGCONT)
	eventually(t, "child is back", func() bool { return m.Alive(node) })
	back := m.LastHeard(node)
	eventually(t, "child had time to judge",
		func() bool { return m.LastHeard(node).Sub(back) > time.Second })
	m.stop()
	line, err := watcher.out.ReadString('\n')
	if err != nil || line != "down\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	// A wrong first verdict would be followed by another up.
	watcher.signal(t, syscall.SIGKILL)
	if rest, _ := watcher.out.ReadString(0); rest != "" {
		t.Errorf("child held its peer for dead, then said %q", rest)
	}
}

// Silence that ended because the peer was gone for less than the heartbeats
// notice still shows: the process that answers is another.
func TestQuickRestartIsReported(t *testing.T) {
	t.Parallel()
	l := &link{broken: make(chan struct{})}
	now := time.Now()
	if up, restarted := l.noteUp(answer{boot: []byte("a")}, now); !up || restarted {
		t.Errorf("first answer: up %t restarted %t", up, restarted)
	}
	if up, restarted := l.noteUp(answer{boot: []byte("a")}, now); up || restarted {
		t.Errorf("second answer: up %t restarted %t", up, restarted)
	}
	if up, restarted := l.noteUp(answer{boot: []byte("b")}, now); up || !restarted {
		t.Errorf("answer of another process: up %t restarted %t", up, restarted)
	}
}
