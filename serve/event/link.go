package event

import (
	"context"
	"slices"
	"time"

	"clustermaster/serve/event/eventpb"
)

// link is this master's stream to one other master, reopened whenever it breaks.
type link struct {
	mesh   *Mesh
	node   string
	cancel context.CancelFunc
	wake   chan struct{}

	// guarded by mesh.mu
	up        bool
	broken    bool              // was up or was tried, and is not up now
	gap       bool              // an earlier link to the node ended, and this one has not confirmed
	lostNow   bool              // its loss is noted, until it confirms again
	sent      map[string]uint64 // prefix to the seq of the message that added it, in this stream
	seq       uint64
	confirmed uint64
}

func newLink(m *Mesh, node string, cancel context.CancelFunc) *link {
	return &link{mesh: m, node: node, cancel: cancel, wake: make(chan struct{}, 1)}
}

// confirms reports whether the peer sends the events of prefix. The caller holds mesh.mu.
func (l *link) confirms(prefix string) bool {
	seq, ok := l.sent[prefix]
	return l.up && ok && l.confirmed >= seq
}

func (l *link) run(ctx context.Context) {
	const first, most = 100 * time.Millisecond, time.Second
	wait := first
	for ctx.Err() == nil {
		began := time.Now()
		err := l.stream(ctx)
		l.down(ctx)
		if ctx.Err() != nil {
			return
		}
		l.mesh.log.Debug("event stream ended", "peer", l.node, "err", err)
		if time.Since(began) > most {
			wait = first
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, most)
	}
}

func (l *link) stream(ctx context.Context) error {
	conn, err := l.mesh.peers.Conn(l.node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := eventpb.NewMeshClient(conn).Attach(ctx)
	if err != nil {
		return err
	}
	m := l.mesh
	m.mu.Lock()
	l.up, l.sent, l.seq, l.confirmed = true, make(map[string]uint64), 0, 0
	m.mu.Unlock()

	received := make(chan error, 1)
	go func() {
		var dropped uint64 // the count in this stream
		for {
			item, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			if item.Dropped > dropped {
				dropped = item.Dropped
				m.mu.Lock()
				m.missed()
				m.mu.Unlock()
			}
			if item.Confirmed == 0 {
				m.deliver(Event{Tag: item.Tag, Data: item.Data})
				continue
			}
			m.mu.Lock()
			if l.broken || l.gap { // its events since then are lost here
				m.missed()
			}
			l.confirmed, l.lostNow, l.broken, l.gap = item.Confirmed, false, false, false
			m.signal()
			m.mu.Unlock()
		}
	}()
	for {
		if change := l.next(); change != nil {
			if err := stream.Send(change); err != nil {
				cancel()
				return <-received
			}
		}
		select {
		case <-l.wake:
		case err := <-received:
			return err
		case <-ctx.Done():
			<-received
			return ctx.Err()
		}
	}
}

// next returns the message that updates the prefixes at the peer, nil if they are up to date. The
// first message of a stream is sent even without prefixes: its confirmation shows that the peer
// lives.
func (l *link) next() *eventpb.Interest {
	m := l.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	change := &eventpb.Interest{Seq: l.seq + 1}
	for prefix := range m.refs {
		if _, ok := l.sent[prefix]; !ok {
			change.Add = append(change.Add, prefix)
			l.sent[prefix] = change.Seq
		}
	}
	for prefix := range l.sent {
		if m.refs[prefix] == 0 {
			change.Remove = append(change.Remove, prefix)
			delete(l.sent, prefix)
		}
	}
	if len(change.Add) == 0 && len(change.Remove) == 0 && l.seq > 0 {
		return nil
	}
	slices.Sort(change.Add)
	slices.Sort(change.Remove)
	l.seq = change.Seq
	return change
}

// down notes that the stream ended. It counts as a loss only if the stream had confirmed something:
// a peer that was never reached had no relevant subscriber.
func (l *link) down(ctx context.Context) {
	m := l.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.up && l.confirmed > 0 && ctx.Err() == nil {
		m.lost(l.node)
		m.missed()
	}
	l.up, l.broken, l.sent = false, true, nil
	m.signal()
}
