package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/lb"
)

// fakeMaster has a master's ports: 4505 and 4506 send its number and stay open, 4521 gives the
// answers that the test sets.
type fakeMaster struct {
	number int
	ready  atomic.Bool
	live   atomic.Bool
	hung   atomic.Bool
	ended  chan struct{}
}

func startFake(t *testing.T, b Base, number int) *fakeMaster {
	t.Helper()
	f := &fakeMaster{number: number, ended: make(chan struct{})}
	f.ready.Store(true)
	f.live.Store(true)
	var mu sync.Mutex
	var conns []net.Conn
	listen := func(port int) net.Listener {
		ln, err := net.Listen("tcp", net.JoinHostPort(b.Master(number), strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln
	}
	for _, port := range []int{PublishPort, RequestPort} {
		ln := listen(port)
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				mu.Lock()
				conns = append(conns, conn)
				mu.Unlock()
				fmt.Fprintf(conn, "%d\n", number)
			}
		}()
	}
	answer := func(ok *atomic.Bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if f.hung.Load() {
				<-f.ended
			}
			if !ok.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/readyz", answer(&f.ready))
	mux.Handle("/livez", answer(&f.live))
	srv := &http.Server{Handler: mux}
	ln := listen(HealthPort)
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() {
		close(f.ended)
		srv.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	return f
}

// session opens a connection through the balancer, and returns it with the number of the master
// behind it.
func session(addr string, port int) (net.Conn, int, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(addr, strconv.Itoa(port)), 2*time.Second)
	if err != nil {
		return nil, 0, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return nil, 0, err
	}
	b := make([]byte, 2)
	if _, err := io.ReadFull(conn, b); err != nil {
		conn.Close()
		return nil, 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return conn, n, err
}

// behind opens several sessions and returns the masters that got them.
func behind(t *testing.T, addr string, port int) ([]int, error) {
	t.Helper()
	var got []int
	for range 6 {
		conn, n, err := session(addr, port)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if !slices.Contains(got, n) {
			got = append(got, n)
		}
	}
	slices.Sort(got)
	return got, nil
}

// TestShippedBalancer: the shipped configuration does what its head promises. The test chooses the
// masters' answers.
func TestShippedBalancer(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	base := FreeBase(t, 3)
	var fakes []*fakeMaster
	var addrs []string
	for n := 1; n <= 3; n++ {
		fakes = append(fakes, startFake(t, base, n))
		addrs = append(addrs, base.Master(n))
	}
	StartBalancer(t, Folder(t), base.Balancer(), addrs, BalancerOptions{})
	reach := func(what string, want ...int) {
		t.Helper()
		for _, port := range []int{PublishPort, RequestPort} {
			Eventually(t, 10*time.Second, what, func() error {
				got, err := behind(t, base.Balancer(), port)
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("port %d reaches %v, want %v", port, got, want)
				}
				return err
			})
		}
	}
	// hold opens a session of each kind on master n.
	hold := func(n int) (held []net.Conn) {
		t.Helper()
		for _, port := range []int{PublishPort, RequestPort} {
			for got := 0; got != n; {
				conn, at, err := session(base.Balancer(), port)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				if got = at; got == n {
					held = append(held, conn)
				}
			}
		}
		return held
	}
	// open reports whether a session is, at the deadline.
	open := func(conn net.Conn, deadline time.Time) bool {
		t.Helper()
		if err := conn.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Read(make([]byte, 1))
		return os.IsTimeout(err)
	}
	// loses changes the answers of a master, and expects open sessions of master n to end soon.
	loses := func(n int, held []net.Conn, change func()) {
		t.Helper()
		start := time.Now()
		change()
		for i, conn := range held {
			if open(conn, start.Add(6*time.Second)) {
				t.Errorf("session %d on master%d is still open after %v", i, n, time.Since(start))
			}
		}
		t.Logf("sessions on master%d closed after %v", n, time.Since(start).Round(time.Millisecond))
	}

	reach("all masters get sessions", 1, 2, 3)
	loses(1, hold(1), func() { fakes[0].ready.Store(false) })
	reach("a master that isn't ready gets none", 2, 3)
	loses(2, hold(2), func() { fakes[1].hung.Store(true) })
	reach("a master that hangs gets none", 3)
	// The sessions of the last ready one end when it isn't, but there is always one that serves.
	stop := make(chan struct{})
	served := make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				served <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
			conn, _, err := session(base.Balancer(), PublishPort)
			if err != nil { // its master may have been marked down at that moment
				conn, _, err = session(base.Balancer(), PublishPort)
			}
			if err != nil {
				served <- err
				return
			}
			conn.Close()
		}
	}()
	fakes[2].ready.Store(false)
	reach("with none ready, those alive serve", 1, 3)
	close(stop)
	if err := <-served; err != nil {
		t.Errorf("no master served for a moment: %v", err)
	}
	fakes[2].live.Store(false)
	reach("the only one left serves", 1)

	// Sessions that were made while no master was ready: they end if another one is ready, ...
	lost := hold(1)
	loses(1, lost, func() {
		fakes[2].live.Store(true)
		fakes[2].ready.Store(true)
	})
	reach("one that is ready again takes over", 3)
	// ... and go on with one that is ready again, until it isn't.
	fakes[2].ready.Store(false)
	fakes[2].live.Store(false)
	reach("it is the only one left once more", 1)
	kept := hold(1)
	fakes[0].ready.Store(true)
	fakes[2].live.Store(true)
	fakes[2].ready.Store(true)
	reach("both are ready", 1, 3)
	for i, conn := range kept {
		if !open(conn, time.Now().Add(time.Second)) {
			t.Errorf("session %d ended though its master is ready", i)
		}
	}
	loses(1, kept, func() { fakes[0].ready.Store(false) })
}

func TestFillIn(t *testing.T) {
	t.Parallel()
	const shipped = "global\ndefaults\n    timeout client 1h # x\n    timeout server 1h\n    timeout client-fin 10s\nfrontend a\n  bind *:4505\nfrontend b\n  bind *:4506\nbackend c\n    server master1 192.0.2.11:4505 check\n    server master2 192.0.2.12:4505 check\nbackend d\n    server master1 192.0.2.11:4506\n"
	got, err := fillIn(shipped, "127.1.2.100", []string{"127.1.2.1", "127.1.2.2"}, 0)
	const want = "global\ndefaults\n    timeout client 1h # x\n    timeout server 1h\n    timeout client-fin 10s\nfrontend a\n  bind 127.1.2.100:4505\nfrontend b\n  bind 127.1.2.100:4506\nbackend c\n    server master1 127.1.2.1:4505 check\n    server master2 127.1.2.2:4505 check\nbackend d\n    server master1 127.1.2.1:4506\n    server master2 127.1.2.2:4506\n"
	if err != nil || got != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
	if got, err := fillIn(shipped, "x", []string{"y"}, 1500*time.Millisecond); err != nil ||
		!strings.Contains(got, "timeout server 1500ms\n") {
		t.Errorf("idle: %v\n%s", err, got)
	}
	if _, err := fillIn("global\n", "x", []string{"y"}, 0); err == nil {
		t.Error("a file without placeholders is taken")
	}
}

// TestShippedBalancerIsNotRoot: started by root, the shipped file leaves HAProxy as its own user in
// a folder of its own.
func TestShippedBalancerIsNotRoot(t *testing.T) {
	t.Parallel()
	program := HAProxyProgram(t)
	own, err := user.Lookup("haproxy")
	if os.Geteuid() != 0 || err != nil {
		t.Skip("needs root and the user of HAProxy's package")
	}
	base, dir := FreeBase(t, 2), Folder(t)
	text, err := lb.FillIn(lb.HAProxy, base.Balancer(),
		[]lb.Server{{Name: "m1", Addr: base.Master(1)}})
	if err != nil {
		t.Fatal(err)
	}
	// This machine's own HAProxy may have the socket.
	text = strings.Replace(text, "/var/lib/haproxy/stats", filepath.Join(dir, "stats"), 1)
	put(t, dir, map[string]string{"haproxy.cfg": text})
	p := &Process{Name: "haproxy", Output: filepath.Join(dir, "haproxy.log")}
	ShowOnFailure(t, p.Output)
	p.Start(t, program, "-db", "-f", filepath.Join(dir, "haproxy.cfg"))
	Eventually(t, 10*time.Second, "HAProxy gives up its rights", func() error {
		for field, want := range map[string]string{"Uid": own.Uid, "Gid": own.Gid} {
			if got := ProcStatus(t, p.PID(), field); !slices.Equal(got, slices.Repeat([]string{want}, 4)) {
				return fmt.Errorf("it has the %s %v, want %s", field, got, want)
			}
		}
		root, err := os.Readlink(fmt.Sprintf("/proc/%d/root", p.PID()))
		if err == nil && root != "/var/lib/haproxy" {
			err = fmt.Errorf("its root is %s", root)
		}
		return err
	})
	if err := dial(base.Balancer(), RequestPort); err != nil {
		t.Error(err)
	}
}

// TestUnknownMasters: HAProxy starts although a master's name is unknown, and serves through the
// others.
func TestUnknownMasters(t *testing.T) {
	t.Parallel()
	base := FreeBase(t, 2)
	f := startFake(t, base, 1)
	f.ready.Store(true)
	f.live.Store(true)
	b := StartBalancer(t, Folder(t), base.Balancer(), []string{base.Master(1), "unknown.invalid"},
		BalancerOptions{})
	Eventually(t, 10*time.Second, "the first master is up", func() error {
		up, err := b.Up("requests")
		if err == nil && !slices.Equal(up["requests_masters"], []int{1}) {
			err = fmt.Errorf("up: %v", up)
		}
		return err
	})
}

// TestShippedFilesAreValid: both shipped files pass HAProxy's own check unchanged, and haproxy.cfg
// also with the lines that follow the DNS.
func TestShippedFilesAreValid(t *testing.T) {
	t.Parallel()
	program := HAProxyProgram(t)
	dir := Folder(t)
	put(t, dir, map[string]string{"dns.cfg": regexp.MustCompile(`(?m)^( *)#(\w)`).
		ReplaceAllString(lb.HAProxy, "${1}${2}")})
	for _, f := range []string{Root(t) + "/lb/haproxy.cfg", Root(t) + "/lb/haproxy-salt.cfg",
		dir + "/dns.cfg"} {
		if r := Command(t, program, "-c", "-f", f); r.Code != 0 ||
			strings.Contains(r.Stderr, "WARNING") {
			t.Errorf("%v", r)
		}
	}
}
