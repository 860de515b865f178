package minion

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

// vouching serves what a minion sends; a payload "reply N" gets a reply of N bytes.
var vouching = handlerFunc(func(_ context.Context, r Request) ([]byte, error) {
	r.Sender.Vouch()
	if !r.Sender.Hold(4 * int64(len(r.Payload))) {
		return nil, nil
	}
	n := 2
	fmt.Sscanf(string(r.Payload[:min(len(r.Payload), 20)]), "reply %d", &n)
	return payloadOf(n), nil
})

// strange serves everybody and vouches for nobody.
var strange = handlerFunc(func(context.Context, Request) ([]byte, error) {
	return []byte("ok"), nil
})

// known connects an address from which an accepted minion has spoken.
func known(t *testing.T, addr, from string) *raw {
	t.Helper()
	c := dialFrom(t, addr, from).greet("REQ", "", 1)
	c.request([]byte("x"))
	c.message()
	return c
}

// drip sends a byte of each connection's body now and then, until the test ends.
func drip(t *testing.T, every time.Duration, conns ...*raw) {
	t.Helper()
	tick := time.NewTicker(every)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				for _, c := range conns {
					c.Write([]byte{'x'})
				}
			}
		}
	}()
	t.Cleanup(func() { close(over); <-ended })
}

// TestBodiesThatDrip: whoever sends large bodies and never ends them takes no memory from the
// short requests of others: neither minions nor strangers do.
func TestBodiesThatDrip(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	s, addr, _ := startRequests(t, vouching, Limits{MaxFrame: 16 * mib, MaxInFlight: 64 * mib})
	known(t, addr, "127.0.0.2")
	var hostile []*raw
	for range 8 {
		c := dialFrom(t, addr, "127.0.0.2").greet("REQ", "", 1)
		hostile = append(hostile, c.part(8*mib, 4*mib+1))
	}
	drip(t, 10*time.Millisecond, hostile...)
	eventually(t, "all memory is taken",
		func() bool { return s.memory.inFlight.Load() == s.lim.MaxInFlight })

	minion := known(t, addr, "127.0.0.3")
	minion.request(payloadOf(20 << 10))
	minion.message()
	hostile[0].closedByPeer() // it had waited longest
	eventually(t, "closed for memory", counted(t, s.endpoint, "memory"))
	if n := value(t, s.met.closed.WithLabelValues("memory")); n != 1 {
		t.Errorf("%v connections closed for one request", n)
	}
	// A long request gets no memory from those that are arriving.
	long := dialFrom(t, addr, "127.0.0.3").greet("REQ", "", 1)
	long.Write(append(append([]byte{flagMore, 0}, appendHeader(nil, 0, 16*mib)...),
		payloadOf(16*mib)...))
	long.closedByPeer()
	for _, c := range hostile {
		c.Close()
	}
	eventually(t, "memory given back", func() bool { return s.memory.inFlight.Load() == 0 })
}

// TestOldBodiesMakeRoom: a long request gets its memory from one that has waited for PingTimeout.
func TestOldBodiesMakeRoom(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	s, addr, _ := startRequests(t, vouching, Limits{MaxFrame: 16 * mib, MaxInFlight: 16 * mib,
		PingTimeout: 300 * time.Millisecond, MinRate: 1})
	known(t, addr, "127.0.0.2")
	began := time.Now()
	old := dialFrom(t, addr, "127.0.0.2").greet("REQ", "", 1).part(16*mib, 8*mib+1)
	drip(t, 10*time.Millisecond, old)
	eventually(t, "all memory is taken",
		func() bool { return s.memory.inFlight.Load() == s.lim.MaxInFlight })
	for served := false; !served; {
		c := dialFrom(t, addr, "127.0.0.2").greet("REQ", "", 1)
		c.Write(append(append([]byte{flagMore, 0}, appendHeader(nil, 0, 2*mib)...),
			payloadOf(2*mib)...))
		for err := error(nil); err == nil && !served; {
			var flags byte
			_, flags, err = c.tryFrame()
			served = err == nil && flags&flagCommand == 0
		}
		c.Close()
	}
	if took := time.Since(began); took < s.lim.PingTimeout {
		t.Errorf("closed after %v", took)
	}
	old.closedByPeer()
}

// TestShortBodiesOfStrangers: those have a bound together, and the oldest gives way.
func TestShortBodiesOfStrangers(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	s, addr, _ := startRequests(t, strange, Limits{MaxStrangers: most})
	var hostile []*raw
	for i := range 64 { // each holds 64 KiB
		c := dialFrom(t, addr, fmt.Sprintf("127.0.1.%d", i)).greet("REQ", "", 1)
		hostile = append(hostile, c.part(longBody, longBody/2+1))
		eventually(t, "the part is counted", func() bool {
			return s.memory.strangers.Load() == int64(min(i+1, most/longBody)*longBody) &&
				value(t, s.met.closed.WithLabelValues("memory")) == float64(max(0, i+1-most/longBody))
		})
	}
	for _, c := range hostile[:64-most/longBody] {
		c.closedByPeer()
	}
	drip(t, 10*time.Millisecond, hostile[64-most/longBody:]...)
	lone := dialFrom(t, addr, "127.0.0.2").greet("REQ", "", 1)
	lone.request(payloadOf(2 * most)) // a minion's first request may be a long one
	lone.message()
	first := dialFrom(t, addr, "127.0.0.3").greet("REQ", "", 1)
	first.request(payloadOf(20 << 10))
	first.message()
	for _, c := range hostile {
		c.Close()
	}
	eventually(t, "memory given back", func() bool {
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		return s.memory.inFlight.Load() == 0 && s.memory.strangers.Load() == 0 &&
			s.memory.short == 0 && s.memory.waiting.Len() == 0 && s.memory.shorts.Len() == 0
	})
}

// TestMinRate: a body must keep coming; one that comes slowly but at the rate is served.
func TestMinRate(t *testing.T) {
	t.Parallel()
	s, addr, _ := startRequests(t, vouching,
		Limits{PingTimeout: 2 * time.Second, MinRate: 1 << 10})
	for _, more := range []bool{false, true} { // in the payload, and in a frame after it
		c := dialRaw(t, addr).greet("REQ", "", 1)
		if more {
			c.say([]byte{flagMore, 0}, appendHeader(nil, flagMore, 20_000), payloadOf(20_000))
		} else {
			c.say([]byte{flagMore, 0})
		}
		c.say(appendHeader(nil, 0, 100_000), payloadOf(1000))
		drip(t, 10*time.Millisecond, c)
		c.closedByPeer()
	}
	eventually(t, "closed as slow",
		func() bool { return value(t, s.met.closed.WithLabelValues("slow")) == 2 })
	steady := dialRaw(t, addr).greet("REQ", "", 1)
	const size = 150_000
	steady.say([]byte{flagMore, 0}, appendHeader(nil, 0, size))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range size / 1000 { // 3 s at least, at most 50 KB/s
		<-tick.C
		steady.say(payloadOf(1000))
	}
	steady.message()
}

// TestRepliesNobodyReads: replies count until they are sent, and those that nobody reads give way.
func TestRepliesNobodyReads(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	s, addr, _ := startRequests(t, vouching, Limits{MaxInFlight: 64 * mib})
	known(t, addr, "127.0.0.2")
	var hostile []*raw
	for range 20 { // more than the kernel takes
		c := dialFrom(t, addr, "127.0.0.2")
		c.Conn.(*net.TCPConn).SetReadBuffer(1 << 12)
		c.greet("REQ", "", 1).request(fmt.Appendf(nil, "reply %d", 12*mib))
		hostile = append(hostile, c)
	}
	eventually(t, "replies give way", func() bool {
		return value(t, s.met.closed.WithLabelValues("memory")) >= 15
	})
	if n := s.memory.inFlight.Load(); n > s.lim.MaxInFlight || n < 12*mib {
		t.Errorf("%d bytes in flight", n)
	}
	minion := known(t, addr, "127.0.0.3")
	for _, n := range []int{20 << 10, 1 << 20, 8 << 20} {
		minion.request(fmt.Appendf(nil, "reply %d", n))
		if got := minion.message(); len(got[1]) != n {
			t.Errorf("a reply of %d bytes instead of %d", len(got[1]), n)
		}
	}
	for _, c := range hostile {
		c.Close()
	}
	eventually(t, "memory given back", func() bool { return s.memory.inFlight.Load() == 0 })
}
