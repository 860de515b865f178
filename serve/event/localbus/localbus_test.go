package localbus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"clustermaster/serve/event"
	"clustermaster/serve/event/eventtest"
	"clustermaster/test/logtest"
	"clustermaster/value"
)

// world is a served bus.
type world struct {
	dir string
	bus *event.Bus
	s   *Server
	log *logtest.Buffer
	end func()
}

func serve(t *testing.T, opts Options) *world {
	t.Helper()
	return serveGuarded(t, opts, nil)
}

// serveGuarded serves with what refuses events.
func serveGuarded(t *testing.T, opts Options, guard func(int32) func(context.Context) error) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), log: new(logtest.Buffer), bus: event.NewBus(0, nil, nil)}
	var err error
	w.s, err = Listen(w.dir, opts, Deps{
		Mesh: eventtest.Alone(w.bus), Bus: w.bus, Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Reg: prometheus.NewRegistry(), Guard: guard,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.s.Serve(ctx) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.end)
	return w
}

func (w *world) dial(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(w.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn)
}

// listen connects a listener and waits until it hears.
func (w *world) listen(t *testing.T) *net.UnixConn {
	t.Helper()
	before := figure(t, w.s.metrics.listeners)
	c := w.dial(t, PubSocket)
	eventually(t, func() bool { return figure(t, w.s.metrics.listeners) > before })
	return c
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 20 s")
		}
	}
}

// hear reads the next event of a listener of 3007 and 3008.
func hear(t *testing.T, r *bufio.Reader) (string, value.RawMap) {
	t.Helper()
	body, err := readBody(r, 1<<22)
	if err != nil {
		t.Fatal(err)
	}
	tag, data, err := parseBody(body)
	if err != nil {
		t.Fatal(err)
	}
	return tag, data
}

func TestEventsGoRound(t *testing.T) {
	t.Parallel()
	w := serve(t, Options{})
	if w.bus.Wanted("x") {
		t.Error("the bus is followed though nobody listens")
	}
	one, two := bufio.NewReader(w.listen(t)), bufio.NewReader(w.listen(t))
	puller := w.dial(t, PullSocket)
	for given, kept := range map[string]bool{"theirs": false, "": false,
		"2026-11-21T09:35:13.244628": true, "2026-11-21T09:35:13.244628+00:00": true} {
		frame, err := appendFrame(nil, event.Event{Tag: "my/tag",
			Data: pack(t, value.Map{{Key: "n", Value: int64(7)}, {Key: "_stamp", Value: given}})})
		if err != nil {
			t.Fatal(err)
		}
		// of all releases, with the length before it and without
		for _, form := range [][]byte{frame, frame[lengthBytes:]} {
			if _, err := puller.Write(form); err != nil {
				t.Fatal(err)
			}
			for _, r := range []*bufio.Reader{one, two} {
				tag, data := hear(t, r)
				stamp := data.String("_stamp")
				if n, _ := data.Int("n"); tag != "my/tag" || n != 7 || stamp == "" ||
					(stamp == given) != kept {
					t.Errorf("with the stamp %q: heard %s %v", given, tag, data)
				}
			}
		}
	}
	w.bus.Fire("salt/auth", value.Map{{Key: "bytes", Value: []byte{0xff, 0xfe}},
		{Key: "text", Value: "é"}})
	tag, data := hear(t, one)
	if raw, _ := data.Get("bytes"); tag != "salt/auth" || data.String("text") != "é" ||
		!bytes.Equal(raw, []byte{0xc4, 2, 0xff, 0xfe}) {
		t.Errorf("heard %s %v: bytes are not written as such", tag, data)
	}
	w.end()
	if left, _ := os.ReadDir(w.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func pack(t testing.TB, m value.Map) value.Raw {
	t.Helper()
	b, err := value.PackNew(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheLastOneOut(t *testing.T) {
	t.Parallel()
	w := serve(t, Options{})
	for range 3 {
		c := w.listen(t)
		eventually(t, func() bool { return w.bus.Wanted("x") })
		c.Close()
		eventually(t, func() bool { return !w.bus.Wanted("x") })
	}
}

// TestOwnEvent: a process hears what it fires right after it connected, however busy the master is.
func TestOwnEvent(t *testing.T) {
	t.Parallel()
	w := serve(t, Options{})
	puller := w.dial(t, PullSocket)
	frame, err := appendFrame(nil, event.Event{Tag: "own", Data: pack(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		c := w.dial(t, PubSocket)
		if _, err := puller.Write(frame); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := readBody(bufio.NewReader(c), 1<<22); err != nil {
			t.Fatalf("listener %d: %v", i, err)
		}
		c.Close()
	}
}

func TestSlowListener(t *testing.T) {
	t.Parallel()
	w := serve(t, Options{Queue: 50})
	slow, quick := w.listen(t), w.listen(t)
	var heard atomic.Int64
	go func() {
		for r := bufio.NewReader(quick); ; heard.Add(1) {
			if _, err := readBody(r, 1<<22); err != nil {
				return
			}
		}
	}()
	data := value.Map{{Key: "x", Value: strings.Repeat("x", 1<<16)}}
	n := 0
	for ; figure(t, w.s.metrics.dropped) == 0 && n < 1000; n++ {
		w.bus.Fire("x", data)
		// the quick one misses nothing
		eventually(t, func() bool { return heard.Load() == int64(n+1) })
	}
	if n < 50 || n == 1000 {
		t.Errorf("put out after %d events", n)
	}
	eventually(t, func() bool { return figure(t, w.s.metrics.listeners) == 1 })
	if read, err := io.Copy(io.Discard, slow); err != nil || read > 20*1<<16 {
		t.Errorf("the slow one's connection: %d bytes, then %v, want its end", read, err)
	}
	if !strings.Contains(w.log.String(), "reads too slowly") {
		t.Errorf("log: %s", w.log)
	}
}

// TestSteadyListener: a listener that reads all the time loses nothing, however long it takes for
// the queue; one that reads nothing is disconnected.
func TestSteadyListener(t *testing.T) {
	t.Parallel()
	w := serve(t, Options{WriteTimeout: 500 * time.Millisecond})
	steady := w.listen(t)
	const events, crawled = 2000, 40
	data := value.Map{{Key: "x", Value: strings.Repeat("x", 4096)}}
	for i := range events {
		w.bus.Fire("x", data)
		if i == crawled { // more than the kernel takes is queued for both
			w.listen(t)
		}
	}
	r := bufio.NewReader(steady)
	crawl, walk := time.NewTicker(50*time.Millisecond), time.NewTicker(time.Millisecond)
	defer crawl.Stop()
	defer walk.Stop()
	for i := range events {
		pace := walk
		if i < crawled {
			pace = crawl
		}
		<-pace.C
		if _, err := readBody(r, 1<<22); err != nil {
			t.Fatalf("after %d events: %v; log: %s", i, err, w.log)
		}
	}
	eventually(t, func() bool { return figure(t, w.s.metrics.listeners) == 1 })
	if n := figure(t, w.s.metrics.dropped); n != 1 {
		t.Errorf("%v listeners were disconnected, want 1, which does not read: %s", n, w.log)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := serve(t, Options{MaxEvent: 1000,
		Untrue: map[string]string{"salt/key": "use another program"}})
	long := value.Map{{Key: "x", Value: strings.Repeat("x", 10000)}}
	frame := func(tag string, data value.Raw) []byte {
		b, err := appendFrame(nil, event.Event{Tag: tag, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	listener := bufio.NewReader(w.listen(t))
	for _, c := range []struct {
		name  string
		bytes []byte
		why   string
	}{
		{"no frame", []byte("GET / HTTP/1.1\r\n\r\n"), whyLarge},
		{"another map", append([]byte{0, 0, 0, 1}, 0x80), whyFrame},
		{"another map without a length", []byte("\x82\xa4body\xa4head\x80\xa4body"), whyFrame},
		{"no body", append([]byte{0, 0, 0, 1}, 0xc0), whyFrame},
		{"a length that nobody has", []byte{0x7f, 0xff, 0xff, 0xff}, whyLarge},
		{"a length that nobody has, without a prefix",
			append([]byte(frameStart), 0xc6, 0xff, 0xff, 0xff, 0xff), whyLarge},
		{"a large event", frame("x", pack(t, long)), whyLarge},
		{"no tag", frame("", pack(t, nil)), whyFrame},
		{"a tag that is no text", frame("\xff", pack(t, nil)), whyFrame},
		{"a long tag", frame(strings.Repeat("t", maxTag+1), pack(t, nil)), whyFrame},
		{"no map", frame("x", value.Raw{0x93, 1, 2, 3}), whyFrame},
		{"something behind it", frame("x", value.Raw{0x80, 0}), whyFrame},
	} {
		before := figure(t, w.s.metrics.refused.WithLabelValues(c.why))
		conn := w.dial(t, PullSocket)
		if _, err := conn.Write(c.bytes); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays: %d bytes, %v", c.name, n, err)
		}
		if got := figure(t, w.s.metrics.refused.WithLabelValues(c.why)); got != before+1 {
			t.Errorf("%s is not counted as %s: %s", c.name, c.why, w.log)
		}
	}
	puller := w.dial(t, PullSocket)
	for _, tag := range []string{"salt/key", "salt/keys"} {
		if _, err := puller.Write(frame(tag, pack(t, nil))); err != nil {
			t.Fatal(err)
		}
	}
	if tag, _ := hear(t, listener); tag != "salt/keys" {
		t.Errorf("%s was fired", tag)
	}
	if n := figure(t, w.s.metrics.refused.WithLabelValues(whyTag)); n != 1 ||
		!strings.Contains(w.log.String(), "use another program") {
		t.Errorf("%v tags refused: %s", n, w.log)
	}
}

// TestGuard refuses the events of a process while something is lost, and no others.
func TestGuard(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	w := serveGuarded(t, Options{}, func(pid int32) func(context.Context) error {
		if pid != int32(os.Getpid()) {
			t.Errorf("process %d is asked for", pid)
		}
		return func(context.Context) error {
			if lost.Load() {
				return errors.New("the lead is lost")
			}
			return nil
		}
	})
	listener := bufio.NewReader(w.listen(t))
	puller := w.dial(t, PullSocket)
	fire := func(tag string) {
		b, err := appendFrame(nil, event.Event{Tag: tag, Data: pack(t, nil)})
		if err == nil {
			_, err = puller.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fire("one")
	if tag, _ := hear(t, listener); tag != "one" {
		t.Errorf("%s was fired", tag)
	}
	lost.Store(true)
	fire("two")
	eventually(t, func() bool { return strings.Contains(w.log.String(), "the lead is lost") })
	lost.Store(false)
	fire("three")
	if tag, _ := hear(t, listener); tag != "three" {
		t.Errorf("%s was fired", tag)
	}
	if n := figure(t, w.s.metrics.refused.WithLabelValues(whyGuard)); n != 1 {
		t.Errorf("%v events refused: %s", n, w.log)
	}
}

func TestCrowd(t *testing.T) {
	t.Parallel()
	w := serve(t, Options{})
	for range maxConnections {
		w.dial(t, PubSocket)
	}
	eventually(t, func() bool { return figure(t, w.s.metrics.listeners) == maxConnections })
	one := w.dial(t, PubSocket)
	if _, err := one.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one too many: %v", err)
	}
}

func TestSockets(t *testing.T) {
	t.Parallel()
	w := serve(t, Options{})
	for _, name := range []string{PubSocket, PullSocket} {
		if info, err := os.Stat(filepath.Join(w.dir, name)); err != nil ||
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	try := func(dir string) error {
		s, err := Listen(dir, Options{}, Deps{Mesh: eventtest.Alone(w.bus), Bus: w.bus})
		if err == nil {
			s.Close()
		}
		return err
	}
	if err := try(w.dir); err == nil || !strings.Contains(err.Error(),
		"another salt-master answers there") {
		t.Errorf("beside a master that runs: %v", err)
	}
	if err := try(filepath.Join(w.dir, strings.Repeat("d", 100))); err == nil ||
		!strings.Contains(err.Error(), "set a shorter sock_dir") {
		t.Errorf("in a long sock_dir: %v", err)
	}

	stale := t.TempDir()
	// as a master leaves them that was killed
	for _, name := range []string{PubSocket, PullSocket, RunningFile, WorkersFile} {
		ln, err := net.ListenUnix("unix",
			&net.UnixAddr{Name: filepath.Join(stale, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
	}
	if err := try(stale); err != nil {
		t.Errorf("over stale sockets: %v", err)
	}

	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, PullSocket), []byte("precious"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := try(other); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("over a file: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, PubSocket)); err == nil {
		t.Error("a server that failed left a socket")
	}
}

// TestFraming lets a process that has mapped a file of a folder of packages be told by what lies
// there.
func TestFraming(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string, elem ...string) string {
		path := filepath.Join(append([]string{dir, "lib", "python3.11", "site-packages"},
			elem...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	proc := filepath.Join(dir, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "cmdline"),
		[]byte(filepath.Join(dir, "bin", "python3")+"\x00-m\x00x\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	write("import struct\n", "msgpack", "c.so")
	want := filepath.Join(dir, "lib", "python3.11", "site-packages")
	if got := packageFolders(proc); len(got) != 1 || filepath.Clean(got[0]) != want {
		t.Errorf("beside the program: %q, want %s", got, want)
	}
	maps := "7f00-7f01 r--p 00000000 08:01 42    " + want +
		"/msgpack/c.so\n7f01-7f02 r--p 00000000 08:01 42  " + want +
		"/zmq/z.so (deleted)\n7f02-7f03 rw-p 0 00:00 0\n"
	if err := os.WriteFile(filepath.Join(proc, "maps"), []byte(maps), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := packageFolders(proc); len(got) != 1 || filepath.Clean(got[0]) != want {
		t.Errorf("mapped: %q, want %s", got, want)
	}
	if framingOf(int32(os.Getpid())) != streamed || framingOf(0) != streamed {
		t.Error("a process without Salt is not told streamed frames")
	}
}

func FuzzReadBody(f *testing.F) {
	for _, e := range []event.Event{
		{Tag: "salt/job/1/ret/a", Data: pack(f,
			value.Map{{Key: "id", Value: "a"}, {Key: "b", Value: []byte{0xff}}})},
		{Tag: "x", Data: value.Raw{0x80}},
	} {
		b, err := appendFrame(nil, e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[lengthBytes:])
		f.Add(append(b, b...))
	}
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0x82})
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1 << 12
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			body, err := readBody(r, most)
			if err != nil {
				if body != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
					t.Fatalf("%v, and %d bytes", err, len(body))
				}
				return
			}
			if len(body) > most {
				t.Fatalf("a body of %d bytes", len(body))
			}
			tag, data, err := parseBody(body)
			if err != nil {
				if tag != "" || data != nil {
					t.Fatalf("%v, and %q %v", err, tag, data)
				}
				continue
			}
			packed, err := data.Pack()
			if err != nil {
				t.Fatal(err)
			}
			again, err := appendFrame(nil, event.Event{Tag: tag, Data: packed})
			if err != nil {
				t.Fatal(err)
			}
			if n := binary.BigEndian.Uint32(again); int(n) != len(again)-lengthBytes {
				t.Fatalf("length %d before %d bytes", n, len(again)-lengthBytes)
			}
			for _, form := range [][]byte{again, again[lengthBytes:]} {
				back, err := readBody(bufio.NewReader(bytes.NewReader(form)), 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if tagBack, dataBack, err := parseBody(back); err != nil || tagBack != tag ||
					len(dataBack) != len(data) {
					t.Fatalf("%q %v came back as %q %v, %v", tag, data, tagBack, dataBack, err)
				}
			}
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	e := event.Event{Tag: "salt/job/20261121093513244628/ret/web-a", Data: pack(b, value.Map{
		{Key: "id", Value: "web-a"}, {Key: "jid", Value: "20261121093513244628"},
		{Key: "return", Value: true}, {Key: "retcode", Value: int64(0)},
		{Key: "success", Value: true}, {Key: "fun", Value: "test.ping"},
		{Key: "fun_args", Value: []any{}}, {Key: "cmd", Value: "_return"},
		{Key: "_stamp", Value: "2026-11-21T09:35:13.244628"},
	})}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := appendFrame(nil, e); err != nil {
			b.Fatal(err)
		}
	}
}

// figure reads a counter or gauge.
func figure(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}
