package minion

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func (r *raw) subscribe(topic string) *raw {
	r.t.Helper()
	r.say(appendCommand(nil, cmdSubscribe, []byte(topic)...))
	return r
}

func dialSub(t testing.TB, addr string, topics ...string) *raw {
	t.Helper()
	c := dialRaw(t, addr).greet("SUB", "", 1)
	for _, topic := range topics {
		c.subscribe(topic)
	}
	return c
}

func subscribers(p *PubServer,
	n int) func() bool {
	return func() bool { return p.Subscribers() == n }
}

// Line 2 of the conformance list, and the ends of subscriptions.
func TestSubscriptionForms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		minor           byte
		subscribe, stop []byte
	}{
		{"3.1 command", 1, []byte("\x04\x0a\x09SUBSCRIBE"), []byte("\x04\x07\x06CANCEL")},
		{"3.0 message", 0, []byte("\x00\x01\x01"), []byte("\x00\x01\x00")},
		{"3.1 peer, message", 1, []byte("\x00\x01\x01"), []byte("\x00\x01\x00")},
		{"long frames", 1, []byte("\x06\x00\x00\x00\x00\x00\x00\x00\x0a\x09SUBSCRIBE"),
			[]byte("\x00\x01\x00")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, addr, _ := startPub(t, Limits{}, false)
			c := dialRaw(t, addr).greet("SUB", "", tt.minor)
			c.say(tt.subscribe, tt.subscribe)
			eventually(t, "subscribed", subscribers(p, 1))
			if n := p.Publish(publication(1)); n != 1 {
				t.Errorf("queued for %d", n)
			}
			if got := c.message(); len(got) != 1 || string(got[0]) != "pub 1" {
				t.Errorf("got %q", got)
			}
			c.say(tt.stop)
			eventually(t, "unsubscribed", subscribers(p, 0))
			if n := p.Publish(publication(2)); n != 0 {
				t.Errorf("queued for %d", n)
			}
		})
	}
}

// Line 8: the frames with and without zmq_filtering.
func TestFiltering(t *testing.T) {
	t.Parallel()
	id1, id2 := "bb80758810b7fc09140b929d1f558950eefe67b8",
		"aa80758810b7fc09140b929d1f558950eefe67b8"
	p, addr, _ := startPub(t, Limits{}, true)
	one := dialSub(t, addr, id1, "broadcast")
	two := dialSub(t, addr, "broadcast", id2)
	all := dialSub(t, addr, "", "broadcast") // a minion without filtering hears every copy once
	other := dialSub(t, addr, "syndic")
	eventually(t, "all subscribed", func() bool {
		return p.Subscribers() == 4 && p.Publish(Publication{Topics: []string{"\x00"}}) == 1 &&
			p.Publish(Publication{Topics: []string{"broadcast"}, Payload: []byte("?")}) == 3 &&
			p.Publish(Publication{Topics: []string{id1}, Payload: []byte("?")}) == 2 &&
			p.Publish(Publication{Topics: []string{id2}, Payload: []byte("?")}) == 2
	})
	if n := p.Publish(Publication{Topics: []string{id1, id2, id1},
		Payload: payloadOf(300)}); n != 3 {
		t.Errorf("queued for %d", n)
	}
	p.Publish(Publication{Topics: []string{"broadcast", "syndic"}, Payload: []byte("end")})
	for _, tt := range []struct {
		c    *raw
		want []string
	}{
		{one, []string{id1, "broadcast"}}, {two, []string{id2, "broadcast"}},
		{all, []string{id2, id1, "broadcast", "syndic"}}, {other, []string{"syndic"}},
	} {
		var got []string
		for len(got) == 0 || got[len(got)-1] != tt.want[len(tt.want)-1] {
			m := tt.c.message()
			if len(m) != 2 {
				t.Fatalf("%d frames", len(m))
			}
			if string(m[1]) == "?" || len(m[1]) == 0 {
				continue
			}
			if string(m[0]) == id1 && !bytes.Equal(m[1], payloadOf(300)) {
				t.Errorf("payload %q", m[1])
			}
			got = append(got, string(m[0]))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("topics %q, want %q", got, tt.want)
		}
	}
	// With filtering off on our side a minion that filters hears nothing: a
	// publication starts with no topic.
	q, addr, _ := startPub(t, Limits{}, false)
	dialSub(t, addr, id1)
	eventually(t, "subscribed", subscribers(q, 1))
	if n := q.Publish(Publication{Topics: []string{id1}, Payload: []byte("\x82")}); n != 0 {
		t.Errorf("queued for %d", n)
	}
}

// Line 9: one that does not read misses what is past its bound, the others nothing.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	const hwm, count = 10, 100 // 25 MiB are more than sockets hold
	p, addr, _ := startPub(t, Limits{PubHWM: hwm, WriteTimeout: time.Minute,
		DrainTimeout: 50 * time.Millisecond}, false)
	slow := dialSub(t, addr, "")
	slow.Conn.(*net.TCPConn).SetReadBuffer(1 << 12)
	eventually(t, "subscribed", subscribers(p, 1))
	fast := dialSub(t, addr, "")
	eventually(t, "both subscribed", subscribers(p, 2))
	for i := range count {
		payload := fmt.Appendf(nil, "%d ", i)
		start := time.Now()
		p.Publish(Publication{Payload: append(payload, payloadOf(1<<18)...)})
		if took := time.Since(start); took > 20*time.Second {
			t.Fatalf("Publish took %v", took)
		}
		if m := fast.message(); !bytes.HasPrefix(m[0], payload) {
			t.Fatalf("message %d: %q", i, m[0][:8])
		}
	}
	if n := value(t, p.met.copies.WithLabelValues("slow")); n == 0 {
		t.Error("nothing was dropped for the slow subscriber")
	}
	m := slow.message() // what it reads at last is whole and from the start
	if !bytes.HasPrefix(m[0], []byte("0 ")) || len(m[0]) != 2+1<<18 {
		t.Errorf("slow subscriber got %d bytes, %q", len(m[0]), m[0][:4])
	}
}

func TestStalledSubscriberIsClosed(t *testing.T) {
	t.Parallel()
	p, addr, _ := startPub(t, Limits{WriteTimeout: 100 * time.Millisecond}, false)
	dialSub(t, addr, "").Conn.(*net.TCPConn).SetReadBuffer(1 << 12)
	eventually(t, "subscribed", subscribers(p, 1))
	p.Publish(Publication{Payload: payloadOf(64 << 20)})
	eventually(t, "closed", subscribers(p, 0))
	eventually(t, "counted", counted(t, p.endpoint, "timeout"))
}

func TestHWMIsExact(t *testing.T) {
	t.Parallel()
	s := newSubscriber(nil, nil)
	s.busy = true // no writer comes in between
	e := newEdition(nil, []byte("x"), false)
	taken := 0
	for range 1500 {
		taken += s.put(e.copies, 1000)
	}
	if taken != 1000 {
		t.Errorf("took %d", taken)
	}
	if batch := s.take(nil); len(batch) != maxWriteMessages || s.put(e.copies, 1000) != 0 {
		t.Error("what is being written does not count")
	}
	s.take(nil)
	if n := s.put(slices.Repeat(e.copies, 100), 1000); n != maxWriteMessages {
		t.Errorf("took %d after %d were written", n, maxWriteMessages)
	}
}

func TestHoldAndRelease(t *testing.T) {
	t.Parallel()
	p, addr, _ := startPub(t, Limits{MaxHeld: 3}, false)
	here := dialSub(t, addr, "")
	eventually(t, "subscribed", subscribers(p, 1))
	for _, pub := range []Publication{
		{JID: "1", Payload: []byte("pushed out"), Hold: time.Minute},
		{JID: "2", Payload: []byte("replaced"), Hold: time.Minute},
		{JID: "3", Payload: []byte("released"), Hold: time.Minute},
		{JID: "4", Payload: []byte("kept"), Hold: time.Minute},
		{JID: "5", Payload: []byte("not held")},
		{JID: "2", Payload: []byte("new"), Hold: time.Minute},
		{JID: "6", Payload: []byte("expired"), Hold: time.Nanosecond},
	} {
		p.Publish(pub)
		if got := here.message(); string(got[0]) != string(pub.Payload) {
			t.Errorf("got %q", got)
		}
	}
	p.Release("3")
	p.Publish(Publication{JID: "7", Payload: []byte("7"), Hold: time.Minute})
	p.Release("7")
	back := dialSub(t, addr, "")
	eventually(t, "back", subscribers(p, 2))
	p.Publish(Publication{Payload: []byte("end")})
	var got []string
	for len(got) == 0 || got[len(got)-1] != "end" {
		got = append(got, string(back.message()[0]))
	}
	if want := []string{"kept", "new", "end"}; !slices.Equal(got, want) {
		t.Errorf("the returning subscriber got %q", got)
	}
	// A subscriber that was there gets nothing twice, also when it subscribes more.
	here.subscribe("k").subscribe("")
	p.Publish(Publication{Payload: []byte("end")})
	for {
		m := string(here.message()[0])
		if m == "end" {
			break
		}
		if m != "7" {
			t.Errorf("again: %q", m)
		}
	}
}

func TestHeldTopics(t *testing.T) {
	t.Parallel()
	e := newEdition([]string{"a1", "a2", "b1", "broadcast"}, []byte("x"), true)
	for _, tt := range []struct {
		before, after []string
		want          []string
	}{
		{nil, []string{"a"}, []string{"a1", "a2"}},
		{[]string{"a1"}, []string{"a"}, []string{"a2"}},
		{[]string{"a1"}, []string{"a1", "b"}, []string{"b1", "broadcast"}},
		{[]string{"b"}, []string{""}, []string{"a1", "a2"}},
		{[]string{""}, []string{""}, nil},
		{nil, nil, nil},
	} {
		var got []string
		for _, f := range e.added(tt.before, tt.after) {
			got = append(got, f.topic)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q to %q: %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}

func TestHeldExpires(t *testing.T) {
	t.Parallel()
	p, _, _ := startPub(t, Limits{}, false)
	p.Publish(Publication{JID: "1", Payload: []byte("x"), Hold: time.Millisecond})
	eventually(t, "forgotten", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.held) == 0
	})
}

func TestRefusedSubscribers(t *testing.T) {
	t.Parallel()
	many := []byte{}
	for i := range maxTopics + 1 {
		many = append(many, appendCommand(nil, cmdSubscribe, fmt.Appendf(nil, "%d", i)...)...)
	}
	for _, tt := range []struct {
		name, socketType string
		bytes            []byte
		reason           string
	}{
		{"data", "SUB", []byte("\x00\x05hello"), "unexpected"},
		{"multipart", "SUB", []byte("\x01\x01\x01"), "unexpected"},
		{"empty message", "SUB", []byte{0, 0}, "unexpected"},
		{"2^62", "SUB", []byte("\x02\x40\x00\x00\x00\x00\x00\x00\x00"), "too_large"},
		{"long topic", "SUB", appendCommand(nil, cmdSubscribe, payloadOf(maxTopic+1)...),
			"too_large"},
		{"many topics", "SUB", many, "too_large"},
		{"unknown command", "SUB", appendCommand(nil, "JOIN"), "unexpected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, addr, _ := startPub(t, Limits{}, false)
			c := dialRaw(t, addr).greet(tt.socketType, "", 1)
			c.Write(tt.bytes)
			c.closedByPeer()
			eventually(t, "counted as "+tt.reason, counted(t, p.endpoint, tt.reason))
			eventually(t, "no subscriber", subscribers(p, 0))
		})
	}
	t.Run("REQ on the publish port", func(t *testing.T) {
		p, addr, _ := startPub(t, Limits{}, false)
		c := dialRaw(t, addr)
		c.say(greetingBytes(1), readyFrame("REQ", ""))
		c.closedByPeer()
		eventually(t, "counted", counted(t, p.endpoint, "unexpected"))
	})
}

func TestPublishHeartbeat(t *testing.T) {
	t.Parallel()
	_, addr, _ := startPub(t, Limits{PingInterval: 20 * time.Millisecond,
		PingTimeout: 3 * time.Second}, false)
	c := dialSub(t, addr, "")
	c.say(appendCommand(nil, cmdPing, append([]byte{0, 1}, "0123456789abcdef"...)...))
	pings, pongs := 0, 0
	for pings < 200 { // longer than the timeout: it lives because it answers
		body, flags, err := c.tryFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case flags&flagCommand != 0 && string(body) == "\x04PING\x00\x00":
			pings++
			c.say(appendCommand(nil, cmdPong))
		case flags&flagCommand != 0 && string(body) == "\x04PONG0123456789abcdef":
			pongs++
		default:
			t.Fatalf("got %q", body)
		}
	}
	if pongs != 1 {
		t.Errorf("%d PONGs", pongs)
	}

	p, addr, _ := startPub(t, Limits{PingInterval: 20 * time.Millisecond,
		PingTimeout: 150 * time.Millisecond}, false)
	silent := dialSub(t, addr, "")
	silent.closedByPeer()
	eventually(t, "silent peer counted", counted(t, p.endpoint, "silent"))
	eventually(t, "silent one gone", subscribers(p, 0))
}

func TestLossesRecord(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	type step struct{ ms, remaining int }
	for _, tt := range []struct {
		name  string
		steps []step
		want  []int // ms of the losses, asked at the last step
	}{
		{"one of one", []step{{0, 0}}, nil},
		{"two of two", []step{{0, 1}, {100, 0}}, []int{100}},
		{"two of five", []step{{0, 4}, {100, 3}}, nil},
		{"half of four, slowly", []step{{0, 3}, {2100, 2}}, nil},
		{"half of four", []step{{0, 3}, {1900, 2}}, []int{1900}},
		{"all of six are one loss", []step{{0, 5}, {10, 4}, {20, 3}, {30, 2}, {40, 1}, {50, 0}},
			[]int{20}},
		{"two losses", []step{{0, 1}, {100, 0}, {9000, 1}, {9100, 0}}, []int{100, 9100}},
		{"forgotten", []step{{0, 1}, {100, 0}, {31000, 9}}, nil},
	} {
		var l losses
		made := 0
		for _, s := range tt.steps {
			if l.left(at(s.ms), s.remaining) == loss {
				made++
			}
		}
		if tt.name != "forgotten" && made != len(tt.want) {
			t.Errorf("%s: %d losses were told of", tt.name, made)
		}
		var want []time.Time
		for _, ms := range tt.want {
			want = append(want, at(ms))
		}
		if got := l.times(at(tt.steps[len(tt.steps)-1].ms)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", tt.name, got, want)
		}
	}
}

// Whoever makes losses on purpose makes few.
func TestLossesAreBounded(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var l losses
	count := map[departure]int{}
	for i := range 60 { // two of two, every ten seconds
		at := start.Add(time.Duration(i) * 10 * time.Second)
		count[l.left(at, 1)]++
		count[l.left(at, 0)]++
	}
	if count[loss] != lossesAtMost || count[ignored] != 60-lossesAtMost {
		t.Errorf("got %v", count)
	}
	l.elsewhere(start.Add(10 * time.Minute)) // what is known from elsewhere counts nevertheless
	if n := len(l.times(start.Add(10 * time.Minute))); n != 1 {
		t.Errorf("%d losses are remembered", n)
	}
	at := start.Add(lossPeriod + time.Minute)
	l.left(at, 1)
	if l.left(at, 0) != loss {
		t.Error("later there is no loss any more")
	}
}

func longLived(p *PubServer, n int) func() bool {
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.longLived == n
	}
}

// Those who subscribe and go at once make no loss, however many they are, and they hide none.
func TestShortSubscribersMakeNoLoss(t *testing.T) {
	t.Parallel()
	p, addr, _ := startPub(t, Limits{}, false)
	var minions []*raw
	for range 2 {
		minions = append(minions, dialSub(t, addr, ""))
	}
	eventually(t, "subscribed", subscribers(p, 2))
	p.mu.Lock() // they have been here for long
	for s := range p.young {
		s.since = s.since.Add(-p.lim.LongLived)
	}
	p.mu.Unlock()
	eventually(t, "long-lived", longLived(p, 2))
	for range 5 {
		var crowd []*raw
		for range 20 {
			crowd = append(crowd, dialSub(t, addr, ""))
		}
		eventually(t, "the crowd is here", subscribers(p, 22))
		for _, c := range crowd {
			c.Close()
		}
		eventually(t, "the crowd is gone", subscribers(p, 2))
	}
	if n := len(p.Losses()); n != 0 {
		t.Errorf("%d losses", n)
	}
	for range 20 {
		dialSub(t, addr, "")
	}
	eventually(t, "another crowd", subscribers(p, 22))
	for _, c := range minions {
		c.Close()
	}
	eventually(t, "the minions' loss is seen", func() bool { return len(p.Losses()) == 1 })
}

func TestLosses(t *testing.T) {
	t.Parallel()
	p, addr, stop := startPub(t, Limits{LongLived: 20 * time.Millisecond}, false)
	var peers []*raw
	for range 5 {
		peers = append(peers, dialSub(t, addr, ""))
	}
	eventually(t, "subscribed", longLived(p, 5))
	peers[0].Close()
	eventually(t, "one gone", subscribers(p, 4))
	if n := len(p.Losses()); n != 0 {
		t.Errorf("%d losses after one of five", n)
	}
	p.ExpectBack()
	if n := len(p.Losses()); n != 1 {
		t.Errorf("%d losses when others are expected back", n)
	}
	p.losses.mu.Lock() // that was longer ago than a loss lasts
	p.losses.record[0] = p.losses.record[0].Add(-lossWindow)
	p.losses.mu.Unlock()
	for _, c := range peers[1:] {
		c.Close()
	}
	eventually(t, "a loss", func() bool { return len(p.Losses()) == 2 })
	dialSub(t, addr, "")
	dialSub(t, addr, "")
	eventually(t, "subscribed again", longLived(p, 2))
	stop()
	if n := len(p.Losses()); n != 2 {
		t.Errorf("%d losses: stopping counts", n)
	}
}

func TestStopFlushes(t *testing.T) {
	t.Parallel()
	p, addr, stop := startPub(t, Limits{}, false)
	c := dialSub(t, addr, "")
	eventually(t, "subscribed", subscribers(p, 1))
	const count = 500
	for i := range count {
		p.Publish(publication(i))
	}
	stop()
	for i := range count {
		if got := c.message(); string(got[0]) != fmt.Sprintf("pub %d", i) {
			t.Fatalf("message %d: %q", i, got)
		}
	}
	if _, _, err := c.tryFrame(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

func TestSubscribeClient(t *testing.T) {
	t.Parallel()
	p, addr, _ := startPub(t, Limits{PingInterval: 10 * time.Millisecond,
		PingTimeout: 2 * time.Second}, true)
	c, err := DialSubscribe(t.Context(), addr, []string{"broadcast", "x"}, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan [][]byte)
	ended := make(chan error)
	go func() {
		for {
			m, err := c.Next()
			if err != nil {
				ended <- err
				return
			}
			got <- m
		}
	}()
	<-c.Confirmed()
	if n := p.Publish(Publication{Topics: []string{"x"}, Payload: payloadOf(1)}); n != 1 {
		t.Errorf("confirmed, but queued for %d", n)
	}
	<-got
	eventually(t, "more PINGs than an unanswered one allows",
		func() bool { return value(t, p.met.pingsSent) > 300 })
	p.Publish(Publication{Topics: []string{"broadcast", "y"}, Payload: payloadOf(70000)})
	if m := <-got; len(m) != 2 || string(m[0]) != "broadcast" || len(m[1]) != 70000 {
		t.Errorf("got %d frames", len(m))
	}
	c.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestMain makes this binary a crowd of subscribers when a benchmark asks for it: one
// process may not open the files of both ends.
func TestMain(m *testing.M) {
	if crowd := os.Getenv("TEST_SUBSCRIBERS"); crowd != "" {
		var addr string
		var n int
		if _, err := fmt.Sscan(crowd, &addr, &n); err != nil {
			panic(err)
		}
		subscribeMany(addr, n)
		return
	}
	os.Exit(m.Run())
}

// subscribeMany prints a line when all are connected and one whenever each of them has
// had a publication more. It ends when its standard input does.
func subscribeMany(addr string, n int) {
	var received atomic.Int64
	var dialing sync.WaitGroup
	slots := make(chan struct{}, 64)
	for range n {
		slots <- struct{}{}
		dialing.Go(func() {
			defer func() { <-slots }()
			c, err := DialSubscribe(context.Background(), addr, []string{""}, ClientOptions{})
			if err != nil {
				panic(err)
			}
			go func() {
				for {
					if _, err := c.Next(); err != nil {
						return
					}
					if received.Add(1)%int64(n) == 0 {
						fmt.Println("all")
					}
				}
			}()
		})
	}
	dialing.Wait()
	io.Copy(io.Discard, os.Stdin)
}

// BenchmarkFanOut publishes a test.ping of 463 bytes to subscribers of another process;
// an op ends when the last of them has it.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := NewPubServer(Limits{}, false, nil, nil)
			addr, _ := run(b, p.Serve)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("TEST_SUBSCRIBERS=%s %d", addr, n))
			cmd.Stderr = os.Stderr
			stdin, errIn := cmd.StdinPipe()
			stdout, errOut := cmd.StdoutPipe()
			if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
				b.Fatal(err)
			}
			defer cmd.Wait()
			defer stdin.Close()
			lines := bufio.NewScanner(stdout)
			eventually(b, "all subscribed", subscribers(p, n))
			payload := payloadOf(463)
			var queued time.Duration
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				p.Publish(Publication{Payload: payload})
				queued += time.Since(start)
				if !lines.Scan() {
					b.Fatal("subscribers ended")
				}
			}
			b.ReportMetric(float64(queued.Microseconds())/float64(b.N), "µs-in-Publish/op")
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "copies/s")
		})
	}
}
