package localbus

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"clustermaster/serve/event"
	"clustermaster/value"
)

const (
	// askerAge is how long before its order a client may have connected. Salt's clients connect,
	// and send the order next.
	askerAge = 5 * time.Second
	// askerLate is how much later than the order its client's listener may be accepted here.
	askerLate = 50 * time.Millisecond
	// A client is watched for at least askerWatch. If nobody who waits is found, it goes on until
	// askerLimit.
	askerWatch = 100 * time.Millisecond
	askerLimit = time.Second
	askerPause = 5 * time.Millisecond

	maxAnswers  = 256         // that wait for their event
	answersKept = time.Minute // if the event never comes
)

// answer is what some listeners get instead of an event.
type answer struct {
	frame []byte
	to    map[*listener]bool
	made  time.Time
}

// Answer gives data, in place of the event tag, to the client that sent an order and waits for that
// event. All others get the event. client is the client's end of the connection by which the order
// came at the time asked. Call Answer before the event is fired, and answer the order after it: the
// client is recognized by that it does not read yet.
//
// The client is the process that holds the connection. That process may have other listeners whose
// events reach users: salt-api has one for each reader of /events. So a listener gets data only if
// it connected shortly before the order, and has read nothing while it was watched.
func (s *Server) Answer(client netip.AddrPort, asked time.Time, tag string, data value.Map) {
	raw, err := value.Pack(data)
	if err == nil {
		var to map[*listener]bool
		if to, err = s.hub.askers(client, asked); err == nil {
			err = s.hub.instead(tag, raw, to)
		}
	}
	if err != nil {
		s.log.Info("the answer to an order stays hidden: its client does not wait for it on this machine", "tag", tag,
			"addr", client, "err", err)
	}
}

// instead keeps what the listeners get in place of an event.
func (h *hub) instead(tag string, data value.Raw, to map[*listener]bool) error {
	frame, err := appendFrame(nil, event.Event{Tag: tag, Data: data})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for t, a := range h.answers {
		if time.Since(a.made) > answersKept {
			delete(h.answers, t)
		}
	}
	if len(h.answers) >= maxAnswers {
		return fmt.Errorf("%d answers wait for their events", len(h.answers))
	}
	h.answers[tag] = answer{frame: frame, to: to, made: time.Now()}
	return nil
}

// watch is how one listener behaved since it was watched.
type watch struct {
	unread int // bytes, as the kernel counts them
	reads  bool
}

// askers returns the listeners of the process with the other end of a connection that connected
// shortly before asked and do not read. There is at least one without an error.
func (h *hub) askers(client netip.AddrPort, asked time.Time) (map[*listener]bool, error) {
	inode, err := socketOf(client)
	if err != nil {
		return nil, err
	}
	holders := make(map[int32]bool) // process to whether it has the connection
	watched := make(map[*listener]*watch)
	began := time.Now()
	for {
		for _, l := range h.present() {
			holds, known := holders[l.pid]
			if !known {
				holds = hasSocket(l.pid, inode)
				holders[l.pid] = holds
			}
			if age := asked.Sub(l.since); !holds || age < -askerLate || age > askerAge {
				continue
			}
			n, sent := l.unread()
			w := watched[l]
			switch {
			case !sent: // nothing shows whether it reads
			case w == nil:
				watched[l] = &watch{unread: n, reads: n == 0}
			default:
				w.reads = w.reads || n == 0 || n < w.unread
				w.unread = n
			}
		}
		to := make(map[*listener]bool)
		for l, w := range watched {
			if !w.reads {
				to[l] = true
			}
		}
		took := time.Since(began)
		switch {
		case took >= askerWatch && len(to) > 0:
			return to, nil
		case took >= askerLimit:
			return nil, fmt.Errorf("no listener of that process waits; %d were watched",
				len(watched))
		}
		time.Sleep(askerPause)
	}
}

// present returns the listeners.
func (h *hub) present() []*listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*listener, 0, len(h.listeners))
	for l := range h.listeners {
		list = append(list, l)
	}
	return list
}

// unread returns what the other end has not read yet of what was sent to it, and whether anything
// was.
func (l *listener) unread() (n int, sent bool) {
	if !l.sent.Load() {
		return 0, false
	}
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return 0, true
	}
	// An error is a closed connection: nobody waits there.
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n, true
}

// socketOf returns the number of this machine's socket with that address as its own end.
func socketOf(own netip.AddrPort) (uint64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("find the client of an order: %w", err)
	}
	//lint:ignore SA1019 one look at a connection is not worth a netlink library
	tables := []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6}
	for _, table := range tables {
		lines, err := table()
		if err != nil {
			continue // a kernel without IPv6 lacks the second one
		}
		for _, line := range lines {
			ip, ok := netip.AddrFromSlice(line.LocalAddr)
			if ok && line.Inode != 0 && line.LocalPort == uint64(own.Port()) &&
				ip.Unmap() == own.Addr().Unmap().WithZone("") {
				return line.Inode, nil
			}
		}
	}
	return 0, fmt.Errorf("no process of this machine has the connection %s", own)
}

// hasSocket reports whether a process holds the socket of that number.
func hasSocket(pid int32, inode uint64) bool {
	dir := filepath.Join("/proc", strconv.Itoa(int(pid)), "fd")
	names, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	want := "socket:[" + strconv.FormatUint(inode, 10) + "]"
	for _, name := range names {
		if got, err := os.Readlink(filepath.Join(dir, name.Name())); err == nil && got == want {
			return true
		}
	}
	return false
}
