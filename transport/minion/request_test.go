package minion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func value(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

// Lines 1 and 3 to 7 of the conformance list in the protocol notes.
func TestRequestConformance(t *testing.T) {
	t.Parallel()
	s, addr, _ := startRequests(t, echo, Limits{})

	t.Run("1 connect and close", func(t *testing.T) {
		for range 20 {
			dialRaw(t, addr).Close()
		}
		eventually(t, "probes counted",
			func() bool { return value(t, s.met.closed.WithLabelValues("gone")) >= 20 })
		eventually(t, "no connection left", func() bool { return s.Connections() == 0 })
	})
	t.Run("3 PING context", func(t *testing.T) {
		c := dialRaw(t, addr).greet("REQ", "", 1)
		c.say(appendCommand(nil, cmdPing, append([]byte{0, 100}, "ctx4"...)...))
		if body, command := c.frame(); !command || string(body) != "\x04PONGctx4" {
			t.Errorf("answer %q", body)
		}
	})
	t.Run("4 equal identities", func(t *testing.T) {
		a := dialRaw(t, addr).greet("REQ", "same", 1)
		b := dialRaw(t, addr).greet("REQ", "same", 1)
		for range 3 {
			a.request([]byte("a"))
			b.request([]byte("b"))
			if got := b.message(); string(got[1]) != "re:b" {
				t.Errorf("b got %q", got)
			}
			if got := a.message(); string(got[1]) != "re:a" {
				t.Errorf("a got %q", got)
			}
		}
	})
	for _, n := range []int{0, 1, 252, 253, 255, 256, 65535, 65536, 65537, 5 << 20} {
		t.Run(fmt.Sprint("5 and 6 payload of ", n), func(t *testing.T) {
			for minor := range byte(2) {
				c := dialRaw(t, addr).greet("REQ", "", minor)
				go c.request(payloadOf(n))
				got := c.message()
				if len(got) != 2 || len(got[0]) != 0 || len(got[1]) != n+3 ||
					!bytes.HasSuffix(got[1], payloadOf(n)) {
					t.Errorf("reply of %d frames", len(got))
				}
			}
		})
	}
	t.Run("further frames are ignored", func(t *testing.T) {
		c := dialRaw(t, addr).greet("DEALER", "", 1)
		c.say([]byte("\x01\x00\x01\x01a\x01\x01b\x00\x01c"), []byte("\x01\x00\x00\x01d"))
		if got := c.message(); string(got[1]) != "re:a" {
			t.Errorf("reply %q", got)
		}
		if got := c.message(); string(got[1]) != "re:d" {
			t.Errorf("reply %q", got)
		}
	})
}

func TestClientGoesWhileHandled(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}), make(chan struct{})
	finished := make(chan error, 1)
	s, addr, _ := startRequests(t, handlerFunc(func(ctx context.Context, r Request) ([]byte,
		error) {
		close(started)
		<-finish
		finished <- ctx.Err()
		return payloadOf(1 << 20), nil
	}), Limits{})
	c := dialRaw(t, addr).greet("REQ", "", 1)
	c.request([]byte("x"))
	<-started
	c.Close()
	close(finish)
	if err := <-finished; err != nil {
		t.Errorf("handler's context: %v", err)
	}
	eventually(t, "connection dropped", func() bool { return s.Connections() == 0 })
}

// Everything that must cost a peer its connection, and nobody else anything.
func TestRefusals(t *testing.T) {
	t.Parallel()
	huge := append([]byte{flagLong}, 0x40, 0, 0, 0, 0, 0, 0, 0) // 2^62
	minus := append([]byte{flagLong}, bytes.Repeat([]byte{0xff}, 8)...)
	truncated := appendCommand(nil, cmdReady, append([]byte{200}, "Socket-Type"...)...)
	for _, tt := range []struct {
		name   string
		greet  bool // a hand-shake first
		bytes  []byte
		reason string
	}{
		{"http", false, []byte("GET / HTTP/1.1\r\n\r\n"), "garbage"},
		{"salt tcp transport", false, []byte("\x82\xa4head"), "garbage"},
		{"tls", false, []byte("\x16\x03\x01\x02\x00"), "garbage"},
		{"ZMTP 2", false, []byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x03\x00\x00"),
			"garbage"},
		{"PLAIN", false, bytes.Replace(greetingBytes(1), []byte("NULL\x00"), []byte("PLAIN"), 1),
			"garbage"},
		{"proxy from stranger", false, []byte("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n"), "garbage"},
		{"message before READY", false, append(greetingBytes(1), 0, 1, 'x'), "garbage"},
		{"2^62 before READY", false, append(greetingBytes(1),
			append([]byte{flagLong | flagCommand}, huge[1:]...)...), "too_large"},
		{"truncated metadata", false, append(greetingBytes(1), truncated...), "garbage"},
		{"metadata value past the end", false,
			append(greetingBytes(1), appendCommand(nil, cmdReady,
				[]byte("\x01a\xff\xff\xff\xff")...)...), "garbage"},
		{"unknown socket type", false, append(greetingBytes(1), readyFrame("FOO", "")...),
			"unexpected"},
		{"a property in another case", false, append(greetingBytes(1), append(appendCommand(nil, cmdReady,
			[]byte("\x0bSoCket-TYpe\x00\x00\x00\x03REQ")...), huge...)...), "too_large"},
		{"SUB on the request port", false, append(greetingBytes(1), readyFrame("SUB", "")...),
			"unexpected"},
		{"no socket type", false, append(greetingBytes(1), appendCommand(nil, cmdReady)...),
			"unexpected"},
		{"ERROR", false, append(greetingBytes(1), appendCommand(nil, cmdError, 0)...), "garbage"},
		{"2^62 delimiter", true, huge, "too_large"},
		{"2^62 payload", true, append([]byte{flagMore, 0}, huge...), "too_large"},
		{"2^64-1 payload", true, append([]byte{flagMore, 0}, minus...), "too_large"},
		{"2^62 command", true, append([]byte{flagLong | flagCommand}, huge[1:]...), "too_large"},
		{"limit + 1", true, append([]byte{flagMore, 0}, appendHeader(nil, 0, 1<<20+1)...),
			"too_large"},
		{"sum of frames", true, append([]byte{flagMore, 0},
			append(appendHeader(nil, flagMore, 1<<20), append(payloadOf(1<<20), 0, 1)...)...),
			"too_large"},
		{"endless frames", true, bytes.Repeat([]byte{flagMore, 0}, 100), "too_large"},
		{"reserved flags", true, []byte{0x80, 0}, "garbage"},
		{"command with MORE", true, []byte{flagCommand | flagMore, 0}, "garbage"},
		{"no delimiter", true, []byte("\x00\x01x"), "unexpected"},
		{"delimiter alone", true, []byte{0, 0}, "unexpected"},
		{"PING without TTL", true, appendCommand(nil, cmdPing), "garbage"},
		{"PING with long context", true, appendCommand(nil, cmdPing, payloadOf(19)...), "garbage"},
		{"SUBSCRIBE", true, appendCommand(nil, cmdSubscribe), "unexpected"},
		{"empty command", true, []byte{flagCommand, 0}, "garbage"},
		{"command name past the end", true, []byte{flagCommand, 2, 5, 'P'}, "garbage"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, addr, _ := startRequests(t, echo, Limits{MaxFrame: 1 << 20})
			c := dialRaw(t, addr)
			if tt.greet {
				c.greet("REQ", "", 1)
			}
			c.Write(tt.bytes)
			c.closedByPeer()
			reason := tt.reason
			eventually(t, "closed as "+reason, counted(t, s.endpoint, reason))
			d := dialRaw(t, addr).greet("REQ", "", 1)
			d.request([]byte("x"))
			if got := d.message(); string(got[1]) != "re:x" {
				t.Errorf("the next client got %q", got)
			}
		})
	}
}

// What a peer claims is not allocated before it comes, whether the claim is refused or not. This
// test is not parallel to others, for it counts what the process allocates.
func TestClaimsAreNotAllocated(t *testing.T) {
	const claim = 1 << 30
	delimiter := []byte{flagMore, 0}
	for _, tt := range []struct {
		name     string
		maxFrame int64
		greet    bool
		bytes    []byte
		reason   string
	}{
		{"READY", 1 << 20, false, append(greetingBytes(1), appendHeader(nil, flagCommand, claim)...),
			"too_large"},
		{"delimiter", 1 << 20, true, appendHeader(nil, flagMore, claim), "too_large"},
		{"payload", 1 << 20, true, appendHeader(delimiter, 0, claim), "too_large"},
		{"command", 1 << 20, true, appendHeader(nil, flagCommand, claim), "too_large"},
		{"payload within the limit", claim, true, append(appendHeader(delimiter, 0, claim), "x"...),
			"gone"},
	} {
		s, addr, _ := startRequests(t, echo, Limits{MaxFrame: tt.maxFrame})
		c := dialRaw(t, addr)
		if tt.greet {
			c.greet("REQ", "", 1)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.say(tt.bytes)
		c.Conn.(*net.TCPConn).CloseWrite()
		c.closedByPeer()
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > claim/16 {
			t.Errorf("%s: allocated %d bytes", tt.name, grown)
		}
		eventually(t, tt.name+" closed as "+tt.reason, counted(t, s.endpoint, tt.reason))
	}
}

func TestHalfOpenHandshakesBlockNobody(t *testing.T) {
	t.Parallel()
	const n = 100
	halfOpen := func(timeout time.Duration) (*RequestServer, string) {
		s, addr, _ := startRequests(t, echo, Limits{HandshakeTimeout: timeout})
		for i := range n {
			dialRaw(t, addr).say(greetingBytes(1)[:i%greetingSize])
		}
		return s, addr
	}
	_, addr := halfOpen(time.Hour)
	c := dialRaw(t, addr).greet("REQ", "", 1)
	c.request([]byte("x"))
	c.message()
	s, _ := halfOpen(500 * time.Millisecond)
	eventually(t, "half-open connections end",
		func() bool { return value(t, s.met.closed.WithLabelValues("handshake")) == n })
	eventually(t, "no connection left", func() bool { return s.Connections() == 0 })
}

func TestMemoryInFlight(t *testing.T) {
	t.Parallel()
	s, addr, _ := startRequests(t, echo, Limits{MaxFrame: 8 << 20, MaxInFlight: 4 << 20})
	c := dialRaw(t, addr).greet("REQ", "", 1)
	// A claim costs nothing: 50 peers claim 8 MiB each and send 1 KiB.
	for range 50 {
		d := dialRaw(t, addr).greet("REQ", "", 1)
		d.say([]byte{flagMore, 0}, appendHeader(nil, 0, 8<<20), payloadOf(1024))
	}
	c.request([]byte("x"))
	c.message()
	e := dialRaw(t, addr).greet("REQ", "", 1)
	e.Write(append(append([]byte{flagMore, 0}, appendHeader(nil, 0, 8<<20)...),
		payloadOf(8<<20)...))
	e.closedByPeer()
	eventually(t, "closed for memory", counted(t, s.endpoint, "memory"))
	eventually(t, "memory given back", func() bool {
		return s.memory.inFlight.Load() == 0 &&
			s.memory.strangers.Load() == 0
	})
}

// part sends the first bytes of a large request.
func (r *raw) part(claim, sent int) *raw {
	r.t.Helper()
	r.say([]byte{flagMore, 0}, appendHeader(nil, 0, claim), payloadOf(sent))
	return r
}

// Strangers have a small part of the memory, all of them together; minions have the rest.
func TestStrangersShareMemory(t *testing.T) {
	t.Parallel()
	vouch := handlerFunc(func(_ context.Context, r Request) ([]byte, error) {
		if string(r.Payload) == "minion" {
			r.Sender.Vouch()
		}
		return []byte("served"), nil
	})
	s, addr, _ := startRequests(t, vouch, Limits{MaxFrame: 16 << 20, MaxInFlight: 64 << 20,
		MaxStrangers: 1 << 20})
	lone := dialFrom(t, addr, "127.0.0.2").greet("REQ", "", 1)
	lone.request(payloadOf(4 << 20))
	lone.message() // a minion's first request may be a long one
	eventually(t, "memory given back", func() bool { return s.memory.strangers.Load() == 0 })

	const sent = 1 << 20
	a := dialFrom(t, addr, "127.0.0.2").greet("REQ", "", 1).part(4<<20, sent+1)
	eventually(t, "the first holds more than the share",
		func() bool { return s.memory.strangers.Load() == 2*sent })
	b := dialFrom(t, addr, "127.0.0.3").greet("REQ", "", 1)
	b.Write(append(append([]byte{flagMore, 0}, appendHeader(nil, 0, 4<<20)...),
		payloadOf(4<<20)...))
	b.closedByPeer()
	eventually(t, "closed for memory", counted(t, s.endpoint, "memory"))

	minion := dialFrom(t, addr, "127.0.0.4").greet("REQ", "", 1)
	minion.request(payloadOf(60_000)) // what is not long always gets in
	minion.message()
	minion.request([]byte("minion"))
	minion.message()
	minion.request(payloadOf(8 << 20))
	minion.message()
	again := dialFrom(t, addr, "127.0.0.4").greet("REQ", "", 1) // its next connection
	again.request(payloadOf(8 << 20))
	again.message()

	a.Close()
	eventually(t, "memory given back", func() bool {
		return s.memory.inFlight.Load() == 0 &&
			s.memory.strangers.Load() == 0
	})
}

// Whatever strangers send in large requests, they send it slowly.
func TestPaceOfStrangers(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, tt := range []struct {
		after time.Duration
		bytes int64
		want  time.Duration
	}{
		{0, 1 << 20, 0}, {0, 1 << 20, time.Second}, {0, 1 << 19, 2 * time.Second},
		{500 * time.Millisecond, 1, 2 * time.Second}, {time.Hour, 1 << 20, 0},
	} {
		now = now.Add(tt.after)
		if got := p.next(tt.bytes, 1<<20, now).Round(time.Millisecond); got != tt.want {
			t.Errorf("step %d: %v, want %v", i, got, tt.want)
		}
	}
	_, addr, _ := startRequests(t, handlerFunc(func(_ context.Context, r Request) ([]byte, error) {
		r.Sender.Vouch()
		return []byte("served"), nil
	}), Limits{StrangersRate: 128 << 10})
	c := dialRaw(t, addr).greet("REQ", "", 1)
	start := time.Now()
	c.request(payloadOf(128 << 10))
	c.message()
	if took := time.Since(start); took < 400*time.Millisecond {
		t.Errorf("the first request took %v", took)
	}
	// The second one comes from a known minion; a stranger would need more than a minute.
	c.request(payloadOf(16 << 20))
	c.message()
}

// TestStopOfStrangers: an endpoint that stops does not wait until strangers may go on.
func TestStopOfStrangers(t *testing.T) {
	t.Parallel()
	const rate = 1 << 10 // 100 KB take more than a minute
	s, addr, stop := startRequests(t, strange, Limits{StrangersRate: rate,
		DrainTimeout: 15 * time.Second})
	began := time.Now()
	for range 2 {
		dialRaw(t, addr).greet("REQ", "", 1).part(1<<20, 100_000)
	}
	eventually(t, "both wait", func() bool {
		return s.pace.next(0, rate, time.Now()) > 20*time.Second
	})
	stop()
	if took := time.Since(began); took > s.lim.DrainTimeout {
		t.Errorf("ends after %v", took)
	}
}

// TestSmallAmountsCount: an answer that is made of many small values takes no more memory than one
// of large ones.
func TestSmallAmountsCount(t *testing.T) {
	t.Parallel()
	held := make(chan int, 1)
	s, addr, _ := startRequests(t, handlerFunc(func(_ context.Context, r Request) ([]byte, error) {
		r.Sender.Vouch()
		n := 0
		for n < 10_000 && r.Sender.Hold(firstBody) {
			n++
		}
		held <- n
		return nil, nil
	}), Limits{MaxInFlight: 4 << 20})
	for range 2 {
		c := dialRaw(t, addr).greet("REQ", "", 1)
		c.request([]byte("x"))
		if n := <-held; n > 4<<20/firstBody+2 || n < 4<<20/firstBody {
			t.Errorf("holds %d times %d bytes", n, firstBody)
		}
		c.closedByPeer()
		eventually(t, "memory given back", func() bool { return s.memory.inFlight.Load() == 0 })
	}
}

// What a request is decoded to counts until its reply is sent.
func TestDecodedSizeCounts(t *testing.T) {
	t.Parallel()
	holding, finish := make(chan struct{}), make(chan struct{})
	s, addr, _ := startRequests(t, handlerFunc(func(_ context.Context, r Request) ([]byte, error) {
		r.Sender.Vouch()
		if !r.Sender.Hold(3 << 20) {
			return nil, nil
		}
		if string(r.Payload) == "slow" {
			close(holding)
			<-finish
		}
		return []byte("done"), nil
	}), Limits{MaxInFlight: 4 << 20})
	slow := dialRaw(t, addr).greet("REQ", "", 1)
	slow.request([]byte("slow"))
	<-holding
	if n := s.memory.inFlight.Load(); n != 3<<20 {
		t.Errorf("%d bytes in flight", n)
	}
	other := dialRaw(t, addr).greet("REQ", "", 1)
	other.request([]byte("x"))
	other.closedByPeer()
	close(finish)
	if got := slow.message(); string(got[1]) != "done" {
		t.Errorf("reply %q", got)
	}
	eventually(t, "memory given back", func() bool { return s.memory.inFlight.Load() == 0 })
	other = dialRaw(t, addr).greet("REQ", "", 1)
	other.request([]byte("x"))
	other.message()
}

func TestHandlerFailures(t *testing.T) {
	t.Parallel()
	s, addr, _ := startRequests(t, handlerFunc(func(_ context.Context, r Request) ([]byte, error) {
		switch string(r.Payload) {
		case "panic":
			panic("on input")
		case "error":
			return nil, errors.New("out of order")
		case "nil":
			return nil, nil
		}
		return []byte{}, nil
	}), Limits{})
	for _, bad := range []string{"panic", "error", "nil"} {
		c := dialRaw(t, addr).greet("REQ", "", 1)
		c.request([]byte(bad))
		c.closedByPeer()
	}
	eventually(t, "counted",
		func() bool { return value(t, s.met.closed.WithLabelValues("handler")) == 3 })
	c := dialRaw(t, addr).greet("REQ", "", 1)
	c.request([]byte("fine"))
	if got := c.message(); len(got) != 2 || len(got[1]) != 0 {
		t.Errorf("reply %q", got)
	}
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	_, addr, _ := startRequests(t, handlerFunc(func(context.Context, Request) ([]byte, error) {
		<-slow
		return []byte("late"), nil
	}), Limits{PingInterval: 20 * time.Millisecond, PingTimeout: 3 * time.Second})

	idle := dialRaw(t, addr).greet("REQ", "", 1)
	for range 200 { // longer than the timeout: it lives because it answers
		if body, command := idle.frame(); !command || string(body) != "\x04PING\x00\x00" {
			t.Fatalf("got %q", body)
		}
		idle.say(appendCommand(nil, cmdPong))
	}
	waiting := dialRaw(t, addr).greet("REQ", "", 1)
	waiting.request([]byte("x"))
	for range 3 {
		if body, command := waiting.frame(); !command || string(body) != "\x04PING\x00\x00" {
			t.Fatalf("while handled: %q", body)
		}
	}
	close(slow)
	if got := waiting.message(); string(got[1]) != "late" {
		t.Errorf("reply %q", got)
	}

	s, addr, _ := startRequests(t, echo,
		Limits{PingInterval: 20 * time.Millisecond, PingTimeout: 150 * time.Millisecond})
	silent := dialRaw(t, addr).greet("REQ", "", 1)
	silent.closedByPeer()
	eventually(t, "silent peer counted", counted(t, s.endpoint, "silent"))

	old := dialRaw(t, addr).greet("REQ", "", 0) // ZMTP 3.0 knows no PING
	old.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if body, _, err := old.tryFrame(); err == nil {
		t.Errorf("a 3.0 peer got %q", body)
	}
	half := dialRaw(t, addr).greet("REQ", "", 1)
	half.say([]byte("\x01\x00\x00\x05abc"))
	half.closedByPeer()
}

// A peer that can't be asked for a sign of life is given up when it is silent for long; others are
// not.
func TestSilentOldPeers(t *testing.T) {
	t.Parallel()
	lim := Limits{SilentTimeout: 300 * time.Millisecond}
	s, requests, _ := startRequests(t, echo, lim)
	p, publications, _ := startPub(t, lim, false)
	today := dialRaw(t, requests).greet("REQ", "", 1)
	reader := dialSub(t, publications, "")
	old := dialRaw(t, requests).greet("REQ", "", 0)
	silent := dialRaw(t, publications).greet("SUB", "", 0)
	silent.say([]byte("\x00\x01\x01"))
	old.closedByPeer()
	silent.closedByPeer()
	for _, e := range []*endpoint{s.endpoint, p.endpoint} {
		eventually(t, "silent peer counted", counted(t, e, "silent"))
	}
	today.request([]byte("x"))
	today.message()
	p.Publish(publication(1))
	reader.message()

	// An old peer lives as long as it has something to say.
	const timeout = 3 * time.Second
	_, patient, _ := startRequests(t, echo, Limits{SilentTimeout: timeout})
	talker := dialRaw(t, patient).greet("REQ", "", 0)
	began := time.Now()
	for now := range time.Tick(timeout / 8) {
		talker.request([]byte("x"))
		talker.message()
		if now.Sub(began) > timeout*5/4 {
			break
		}
	}
}

func TestMaxConns(t *testing.T) {
	t.Parallel()
	s, addr, _ := startRequests(t, echo, Limits{MaxConns: 2})
	a := dialRaw(t, addr).greet("REQ", "", 1)
	dialRaw(t, addr).greet("REQ", "", 1)
	dialRaw(t, addr).closedByPeer()
	eventually(t, "counted", counted(t, s.endpoint, "full"))
	a.Close()
	eventually(t, "room again", func() bool { return s.Connections() == 1 })
	dialRaw(t, addr).greet("REQ", "", 1)
}

// Endpoints share what the limit of open files leaves.
func TestTotal(t *testing.T) {
	t.Parallel()
	lim := Limits{Total: NewTotal(3)}
	s, addr, _ := startRequests(t, echo, lim)
	other, otherAddr, _ := startRequests(t, echo, lim)
	a := dialRaw(t, addr).greet("REQ", "", 1)
	dialRaw(t, addr).greet("REQ", "", 1)
	dialRaw(t, otherAddr).greet("REQ", "", 1)
	for _, at := range []string{addr, otherAddr} {
		dialRaw(t, at).closedByPeer()
	}
	eventually(t, "counted", counted(t, s.endpoint, "full"))
	eventually(t, "counted", counted(t, other.endpoint, "full"))
	a.Close()
	eventually(t, "room again", func() bool { return s.Connections() == 1 })
	dialRaw(t, otherAddr).greet("REQ", "", 1)
}

func TestStopAnswersWhatItHas(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}), make(chan struct{})
	_, addr, stop := startRequests(t, handlerFunc(func(context.Context, Request) ([]byte, error) {
		close(started)
		<-finish
		return []byte("done"), nil
	}), Limits{})
	idle := dialRaw(t, addr).greet("REQ", "", 1)
	busy := dialRaw(t, addr).greet("REQ", "", 1)
	half := dialRaw(t, addr)
	half.say(greetingBytes(1)[:20])
	busy.request([]byte("x"))
	<-started
	var stopped sync.WaitGroup
	stopped.Go(stop)
	idle.closedByPeer()
	if _, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		t.Error("still accepts")
	}
	close(finish)
	if got := busy.message(); string(got[1]) != "done" {
		t.Errorf("reply %q", got)
	}
	stopped.Wait()
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	_, addr, stop := startRequests(t, handlerFunc(func(ctx context.Context, _ Request) ([]byte,
		error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}), Limits{DrainTimeout: 50 * time.Millisecond})
	dialRaw(t, addr).greet("REQ", "", 1).request([]byte("x"))
	<-started
	stop()
}

func TestProxiedRequest(t *testing.T) {
	t.Parallel()
	_, addr, _ := startRequests(t, handlerFunc(func(_ context.Context, r Request) ([]byte, error) {
		return []byte(r.Remote.String()), nil
	}), Limits{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	for header, want := range map[string]string{
		"PROXY TCP4 192.0.2.7 10.0.0.1 4711 4506\r\n": "192.0.2.7:4711",
		"PROXY UNKNOWN\r\n":                           "127.0.0.1:",
		"":                                            "127.0.0.1:",
	} {
		c := dialRaw(t, addr)
		c.say([]byte(header))
		c.greet("REQ", "", 1).request([]byte("who"))
		if got := c.message(); !strings.HasPrefix(string(got[1]), want) {
			t.Errorf("%q: remote %q", header, got[1])
		}
	}
}

func TestRequestClient(t *testing.T) {
	t.Parallel()
	s, addr, _ := startRequests(t, echo,
		Limits{PingInterval: 10 * time.Millisecond, PingTimeout: 2 * time.Second})
	c, err := DialRequests(t.Context(), addr, ClientOptions{Identity: "salt-req/minion/m1/1/0"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "more PINGs than an unanswered one allows",
		func() bool { return value(t, s.met.pingsSent) > 300 })
	for _, n := range []int{0, 300, 1 << 20} {
		got, err := c.Do(t.Context(), payloadOf(n))
		if err != nil || len(got) != n+3 {
			t.Errorf("reply of %d bytes, %v", len(got), err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Do(t.Context(), nil); err == nil {
		t.Error("a closed client sends")
	}
}

func BenchmarkRequest(b *testing.B) {
	s := NewRequestServer(echo, Limits{}, nil, nil)
	addr, _ := run(b, s.Serve)
	payload := payloadOf(1000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c, err := DialRequests(context.Background(), addr, ClientOptions{})
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		for pb.Next() {
			if _, err := c.Do(context.Background(), payload); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
