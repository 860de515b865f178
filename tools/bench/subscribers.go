package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	transport "clustermaster/transport/minion"
)

// ailment is what is wrong with a subscriber.
type ailment string

const (
	healthy   ailment = ""
	stalls    ailment = "stop reading"
	vanishes  ailment = "vanish without a word"
	readsSlow ailment = "read at an eighth of the pace"
)

// audience is a number of subscribers of a master, some of which ail. They are bare connections,
// not minions: what is measured is how publications reach them.
type audience struct {
	editions editions
	all      []*subscriber
	readers  sync.WaitGroup
	// done is closed to let slow readers, which sleep, end.
	done chan struct{}
}

// subscriber is one connection.
type subscriber struct {
	client  *transport.SubscribeClient
	ails    ailment
	got     int  // publications, all in order
	strange bool // something came out of order, twice, or that nobody published
	latency *shard
	heard   atomic.Int32 // of got, for others to look at
}

// shard is the histogram of some subscribers.
type shard struct {
	mu sync.Mutex // guards h
	h  Histogram
}

const shards = 64

// editions knows publications by their bytes, which all subscribers get alike, in the order in
// which the fastest saw them: the order of publishing.
type editions struct {
	seed maphash.Seed
	sent []atomic.Int64 // by publication: UnixNano when it was ordered

	mu    sync.RWMutex // guards index
	index map[uint64]int
}

func newEditions(n int) editions {
	return editions{seed: maphash.MakeSeed(), sent: make([]atomic.Int64, n),
		index: make(map[uint64]int, n)}
}

// of is the number of a publication, from 0.
func (e *editions) of(payload []byte) int {
	h := maphash.Bytes(e.seed, payload)
	e.mu.RLock()
	i, ok := e.index[h]
	e.mu.RUnlock()
	if ok {
		return i
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if i, ok = e.index[h]; !ok {
		i = len(e.index)
		e.index[h] = i
	}
	return i
}

// small makes a socket of small buffers and small segments, before it connects: the kernels between
// a master and a minion that does not read hold little, as over a real network, and the master's
// own queue begins soon.
func small(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) {
		err = errors.Join(syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET,
			syscall.SO_RCVBUF, 4096),
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
	}); failed != nil {
		return failed
	}
	return err
}

// vanish makes the kernel drop all that comes for the socket, unseen: no acknowledgement, no FIN,
// no RST, as when a machine loses its power or its route.
func vanish(c syscall.RawConn) error {
	all := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}} // keep 0 bytes of each
	var err error
	if failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(all)), Filter: &all[0]})
	}); failed != nil {
		return failed
	}
	return err
}

// subscribe connects n subscribers, the first bad of which ail, from several source addresses.
// publications is how many they will get.
func subscribe(ctx context.Context, addr string, sources []net.IP, n, bad int, ails ailment,
	publications int) (*audience, error) {
	a := &audience{editions: newEditions(publications), done: make(chan struct{}),
		all: make([]*subscriber, n)}
	histograms := make([]shard, shards)
	errs := make([]error, n)
	starting := make(chan struct{}, fleetStarting)
	var wg sync.WaitGroup
	for i := range n {
		starting <- struct{}{}
		wg.Go(func() {
			defer func() { <-starting }()
			s := &subscriber{latency: &histograms[i%shards]}
			o := transport.ClientOptions{LocalAddr: &net.TCPAddr{IP: sources[i/minionsPerSource%len(sources)]}}
			if i < bad {
				s.ails, o.Control = ails, small
			}
			if s.client, errs[i] = transport.DialSubscribe(ctx, addr, []string{""},
				o); errs[i] == nil {
				a.all[i] = s
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		a.close()
		return nil, fmt.Errorf("connect subscribers: %w", err)
	}
	return a, nil
}

// sicken begins what ails; all must be subscribed. The others read from now on.
func (a *audience) sicken(every time.Duration) error {
	for _, s := range a.all {
		switch s.ails {
		case stalls: // nobody calls Next
		case vanishes:
			c, err := s.client.SyscallConn()
			if err == nil {
				err = vanish(c)
			}
			if err != nil {
				return fmt.Errorf("let a subscriber vanish: %w", err)
			}
		case readsSlow:
			a.readers.Go(func() { a.read(s, 8*every) })
		default:
			a.readers.Go(func() { a.read(s, 0) })
		}
	}
	return nil
}

// read takes publications until the connection ends, with a pause after each.
func (a *audience) read(s *subscriber, pause time.Duration) {
	for {
		frames, err := s.client.Next()
		if err != nil {
			return
		}
		now := time.Now()
		i := a.editions.of(frames[len(frames)-1])
		if i >= len(a.editions.sent) || s.ails == healthy && i != s.got {
			s.strange = true
			return
		}
		s.got++
		s.heard.Add(1)
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-a.done:
				return
			}
			continue
		}
		s.latency.mu.Lock()
		s.latency.h.Record(now.Sub(time.Unix(0, a.editions.sent[i].Load())))
		s.latency.mu.Unlock()
	}
}

// complete is how many healthy subscribers have got n publications.
func (a *audience) complete(n int) (subscribers int) {
	for _, s := range a.all {
		if s.ails == healthy && int(s.heard.Load()) == n {
			subscribers++
		}
	}
	return subscribers
}

// close ends all connections and waits for the readers; then what they got may be read.
func (a *audience) close() {
	close(a.done)
	for _, s := range a.all {
		if s != nil {
			s.client.Close()
		}
	}
	a.readers.Wait()
}

// latency is of all publications that healthy subscribers got, from the order to the arrival. Call
// close first.
func (a *audience) latency() *Histogram {
	h := new(Histogram)
	done := make(map[*shard]bool)
	for _, s := range a.all {
		if !done[s.latency] {
			done[s.latency] = true
			h.Merge(&s.latency.h)
		}
	}
	return h
}
