package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
)

// slowLinks has masters on loopback, each behind a proxy at its peer port. The proxy delays what it
// gets as a long link that loses packets would.
type slowLinks struct {
	base  e2e.Base
	delay time.Duration // each way
	loss  float64       // part of the packets
	end   chan struct{} // closed with the test

	// number of a master whose line takes only some bytes per second each way; 0: all lines are
	// wide
	narrow   int
	up, down *line
}

// line is one direction of a line with a limit in bytes per second. All connections share it.
type line struct {
	rate  int
	mu    sync.Mutex
	free  time.Time // when everything given to it is through
	bytes int64     // that went through
}

// queued is how much a line holds before the sender must wait.
const queued = 50 * time.Millisecond

// full is how long the line stays full; 0: it is not.
func (l *line) full() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Until(l.free.Add(-queued)))
}

// through is when n more bytes are through.
func (l *line) through(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
	l.bytes += int64(n)
	return l.free
}

func (l *line) carried() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

func newSlowLinks(t testing.TB, masters int, delay time.Duration, loss float64) *slowLinks {
	t.Helper()
	s := &slowLinks{base: e2e.FreeBase(t, masters), delay: delay, loss: loss,
		end: make(chan struct{})}
	var wg sync.WaitGroup
	var listeners []net.Listener
	t.Cleanup(func() {
		close(s.end)
		for _, ln := range listeners {
			ln.Close()
		}
		wg.Wait()
	})
	for i := 1; i <= masters; i++ {
		ln, err := net.Listen("tcp", net.JoinHostPort(s.Peer(i), strconv.Itoa(e2e.PeerPort)))
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, ln)
		wg.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				wg.Go(func() { s.carry(conn, i) })
			}
		})
	}
	return s
}

// Host implements e2e.Network.
func (s *slowLinks) Host(i int) string { return s.base.Master(i) }

// Peer implements e2e.Network.
func (s *slowLinks) Peer(i int) string { return s.base.Master(proxyAt + i) }

// Command implements e2e.Network.
func (s *slowLinks) Command(_ int, path string, args []string) (string,
	[]string) {
	return path, args
}

// packet is about how much of a stream a packet holds.
const packet = 1448

// late is how long n bytes take to the other end. A lost packet is sent again after a round trip
// and the time that Linux adds, which doubles; those sent together are so together. None is lost a
// third time: nobody would hear of the peer for six seconds then, and the others would rightly hold
// it for down.
func (s *slowLinks) late(n int) time.Duration {
	var late time.Duration
	for ; n > 0; n -= packet {
		var lost time.Duration
		again := 2*s.delay + 200*time.Millisecond
		for range 2 {
			if rand.Float64() >= s.loss {
				break
			}
			lost += again
			again *= 2
		}
		late = max(late, lost)
	}
	return s.delay + late
}

// piece is part of a stream on its way.
type piece struct {
	bytes []byte
	at    time.Time // of arrival
}

// wait returns false if the test ends first.
func (s *slowLinks) wait(until time.Time) bool {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.end:
		return false
	}
}

// carry joins a connection for a master with the master itself.
func (s *slowLinks) carry(in net.Conn, to int) {
	defer in.Close()
	if !s.wait(time.Now().Add(s.late(1) + s.late(1))) { // TCP's own hand-shake
		return
	}
	caller := in.RemoteAddr().(*net.TCPAddr).IP // the member's log and limits must see it
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: caller}, Timeout: 5 * time.Second}
	out, err := d.Dial("tcp", net.JoinHostPort(s.Host(to), strconv.Itoa(e2e.PeerPort)))
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{})
	go func() {
		select {
		case <-s.end:
			in.Close()
			out.Close()
		case <-done:
		}
	}()
	defer close(done)
	var wg sync.WaitGroup
	from := int(caller.To4()[3])
	var there, back *line
	switch s.narrow {
	case 0:
	case from:
		there, back = s.up, s.down
	case to:
		there, back = s.down, s.up
	}
	for i, way := range [][2]net.Conn{{in, out}, {out, in}} {
		src, dst, over := way[0], way[1], there
		if i == 1 {
			over = back
		}
		sent := make(chan piece, 1024)
		wg.Go(func() { s.take(src, sent, over) })
		wg.Go(func() { s.give(dst, src, sent) })
	}
	wg.Wait()
}

// take reads what is sent. Later data does not arrive earlier.
func (s *slowLinks) take(src net.Conn, sent chan<- piece, over *line) {
	defer close(sent)
	var last time.Time
	for {
		for over != nil {
			wait := over.full()
			if wait == 0 {
				break
			}
			if !s.wait(time.Now().Add(wait)) {
				return
			}
		}
		buf := make([]byte, 32<<10)
		n, err := src.Read(buf)
		if n > 0 {
			at := time.Now().Add(s.late(n))
			if over != nil {
				at = over.through(n).Add(s.late(n))
			}
			if at.After(last) {
				last = at
			}
			select {
			case sent <- piece{buf[:n], last}:
			case <-s.end:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// give writes what has arrived. When one end has closed, the other is closed too.
func (s *slowLinks) give(dst, src net.Conn, sent <-chan piece) {
	defer dst.Close()
	for p := range sent {
		if !s.wait(p.at) {
			return
		}
		if _, err := dst.Write(p.bytes); err != nil {
			src.Close()
			for range sent { // until take has seen it
			}
			return
		}
	}
}

// TestSlowLinks: three masters on links with 300 ms of delay each way that lose 2 % of the packets.
// With suitable time-outs they form a cluster, keep their leader, consider no master down, and
// agree on an order given to a follower. A minion that one of them has accepted is served by the
// others, although they hear of it later.
func TestSlowLinks(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, e2e.ClusterOptions{
		Masters: 3, Network: newSlowLinks(t, 3, 300*time.Millisecond, 0.02),
		Extra: "cluster_election_min: 5000\ncluster_election_max: 10000\ncluster_peer_timeout: 6\n",
	})
	c.StartMasters(t)
	e2e.Eventually(t, 60*time.Second, "all are voters", func() error {
		v, err := membersOf(t, c.Masters[0])
		if err == nil && len(v.Voters) != 3 {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
	var offsets []int64
	for _, m := range c.Masters {
		offsets = append(offsets, logSize(m))
	}
	before, err := membersOf(t, c.Masters[0])
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Others(c.Leader(t, c.Masters[0]))[0].Runner(t, "cluster.rotate_keys"); r.Code != 0 {
		t.Errorf("%v", r)
	}
	e2e.Throughout(t, 10*time.Second, "all are ready", func() error {
		for _, m := range c.Masters {
			err := m.Ready()
			if os.IsTimeout(err) { // it got no processor for a second; HAProxy asks twice, too
				err = m.Ready()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", m.ID, err)
			}
		}
		return nil
	})
	after, err := membersOf(t, c.Masters[0])
	if err != nil {
		t.Fatal(err)
	}
	if after.Term != before.Term || after.Leader != before.Leader ||
		!slices.Equal(after.Voters, before.Voters) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	leader := c.Leader(t, c.Masters[0])
	late := newMinion(t, "late")
	late.comes(t, leader)
	told := make(chan e2e.Result, 1)
	go func() { told <- leader.Key(t, "-a", late.id, "-y") }() // returns once all masters know
	e2e.Eventually(t, 30*time.Second, "it signs in", func() error {
		word, err := late.signIn(within(t, 5*time.Second), leader)
		if err == nil && word != "accepted" {
			err = errors.New(word)
		}
		return err
	})
	for _, m := range c.Others(leader) {
		if _, err := late.ask(within(t, 30*time.Second), m, value.Map{
			{Key: "cmd", Value: "_master_opts"}, {Key: "id", Value: late.id}}); err != nil {
			t.Errorf("%s, accepted at %s, asks %s: %v", late.id, leader.ID, m.ID, err)
		}
	}
	succeeds(t, <-told)
	for i, m := range c.Masters {
		if logHas(t, m, offsets[i], "peer does not answer") == nil {
			t.Errorf("%s held a peer for down", m.ID)
		}
	}
}
