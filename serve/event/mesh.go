package event

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Peers is the cluster as the mesh sees it. All methods are called from several goroutines.
type Peers interface {
	// Self returns this master's node name.
	Self() string
	// Members lists the ready masters, with or without this one.
	Members() []string
	// Conn returns the connection to a member; it is kept open and shared.
	Conn(node string) (grpc.ClientConnInterface, error)
}

// Loss is the moment when the stream to a master broke, or the master failed to confirm in time.
type Loss struct {
	Node string
	At   time.Time
}

// confirmTimeout is how long Subscribe waits for masters that do not answer. Only time tells a
// stopped or cut-off master from a busy one, so it bounds the start of every job while one is down.
const confirmTimeout = time.Second

// keepLosses is how long a loss is kept.
const keepLosses = 30 * time.Second

// Mesh extends the bus over all masters. Make one per process, register it as a gRPC service and
// Run it.
type Mesh struct {
	bus   *Bus
	peers Peers
	log   *slog.Logger

	mu      sync.Mutex // guards the fields below, and the links' fields
	subs    map[*Subscription]string
	refs    map[string]int // prefix to subscribers on this master
	links   map[string]*link
	former  map[string]bool // nodes that were members, and are not now
	losses  []Loss
	changed chan struct{} // closed and replaced when a confirmation, a link or a loss changed
	runCtx  context.Context
	running sync.WaitGroup
}

// NewMesh makes the mesh of this master's bus.
func NewMesh(bus *Bus, peers Peers, log *slog.Logger) *Mesh {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Mesh{
		bus: bus, peers: peers, log: log.With("component", "event"),
		subs: make(map[*Subscription]string), refs: make(map[string]int),
		links: make(map[string]*link), former: make(map[string]bool),
		changed: make(chan struct{}),
	}
}

// Run keeps one stream open to each other master until ctx ends.
func (m *Mesh) Run(ctx context.Context) error {
	m.mu.Lock()
	m.runCtx = ctx
	m.mu.Unlock()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		m.reconcile()
		select {
		case <-tick.C:
		case <-ctx.Done():
			m.mu.Lock()
			m.runCtx = nil
			for node, l := range m.links {
				l.cancel()
				delete(m.links, node)
			}
			m.mu.Unlock()
			m.running.Wait()
			return nil
		}
	}
}

// reconcile starts links to new members and ends those to former ones.
func (m *Mesh) reconcile() {
	members := m.peers.Members()
	self := m.peers.Self()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runCtx == nil || m.runCtx.Err() != nil {
		return
	}
	for _, node := range members {
		if node == self || m.links[node] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(m.runCtx)
		l := newLink(m, node, cancel)
		l.gap = m.former[node]
		m.links[node] = l
		delete(m.former, node)
		m.signal()
		m.running.Add(1)
		go func() {
			defer m.running.Done()
			l.run(ctx)
		}()
	}
	for node, l := range m.links {
		if !slices.Contains(members, node) {
			// A master that leaves takes its minions' sessions with it. The cluster often removes a
			// stopped process before its stream is found to be dead.
			if l.up && l.confirmed > 0 {
				m.lost(node)
				m.missed()
			}
			l.cancel()
			delete(m.links, node)
			m.former[node] = true
			m.signal()
		}
	}
	m.forget()
}

// Follow returns the events of all masters whose tag begins with prefix: those of this one at once,
// those of another once it confirms. A Subscribe that begins later returns only after that, because
// a master confirms in the order of the requests.
func (m *Mesh) Follow(prefix string) *Subscription {
	s := m.bus.Subscribe(prefix)
	local := s.detach
	m.mu.Lock()
	m.subs[s] = prefix
	m.refs[prefix]++
	if m.refs[prefix] == 1 {
		m.wakeLinks()
	}
	m.mu.Unlock()
	s.detach = func() {
		local()
		m.mu.Lock()
		delete(m.subs, s)
		if m.refs[prefix]--; m.refs[prefix] == 0 {
			delete(m.refs, prefix)
			m.wakeLinks()
		}
		m.mu.Unlock()
	}
	m.reconcile()
	return s
}

// Subscribe is Follow, but returns when every ready master that can be reached has confirmed, after
// a second, or when ctx ends; Unconfirmed lists the missing ones. It does not wait for a master
// whose stream is known to be broken. The error is ctx's.
func (m *Mesh) Subscribe(ctx context.Context, prefix string) (*Subscription, error) {
	s := m.Follow(prefix)
	timeout := time.NewTimer(confirmTimeout)
	defer timeout.Stop()
	for {
		waiting, broken, changed := m.unconfirmed(prefix)
		s.unconfirmed = append(waiting, broken...)
		if len(waiting) == 0 {
			break
		}
		select {
		case <-changed:
			continue
		case <-timeout.C:
			m.mu.Lock()
			for _, node := range waiting {
				m.lost(node)
			}
			m.mu.Unlock()
		case <-ctx.Done():
			s.Close()
			return nil, ctx.Err()
		}
		break
	}
	slices.Sort(s.unconfirmed)
	return s, nil
}

// unconfirmed lists the ready members that have not confirmed prefix: those that may still do so,
// and those whose stream is broken. changed is closed when the caller should check again.
func (m *Mesh) unconfirmed(prefix string) (waiting, broken []string, changed <-chan struct{}) {
	members := m.peers.Members()
	self := m.peers.Self()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, node := range members {
		if node == self {
			continue
		}
		l := m.links[node]
		switch {
		case l != nil && l.broken:
			broken = append(broken, node)
		case l == nil || !l.confirms(prefix):
			waiting = append(waiting, node)
		}
	}
	return waiting, broken, m.changed
}

// Losses lists the losses of the last 30 seconds, oldest first.
func (m *Mesh) Losses() []Loss {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	return slices.Clone(m.losses)
}

// lost notes the loss of node, once while it lasts. The caller holds mu.
func (m *Mesh) lost(node string) {
	l := m.links[node]
	if l == nil || l.lostNow {
		return
	}
	l.lostNow = true
	m.losses = append(m.losses, Loss{Node: node, At: time.Now()})
	m.log.Warn("event stream of a peer lost; see salt-run cluster.members", "peer", node)
	m.signal()
}

// forget drops old losses. The caller holds mu.
func (m *Mesh) forget() {
	now := time.Now()
	m.losses = slices.DeleteFunc(m.losses, func(l Loss) bool { return now.Sub(l.At) > keepLosses })
}

// signal wakes waiters after a change. The caller holds mu.
func (m *Mesh) signal() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Mesh) wakeLinks() {
	for _, l := range m.links {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// deliver passes an event of another master to the subscribers here.
func (m *Mesh) deliver(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, prefix := range m.subs {
		if strings.HasPrefix(e.Tag, prefix) {
			s.offer(e)
		}
	}
}

// missed tells all subscribers here that events of another master were lost. The caller holds mu.
func (m *Mesh) missed() {
	for s := range m.subs {
		s.miss()
	}
}
