package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"clustermaster/serve/master/masterpb"
	"clustermaster/value"
)

const (
	// ackTimeout is how long a master may take to queue a publication. A slower one counts as lost:
	// nothing else distinguishes a stopped process from a busy one.
	ackTimeout = 1500 * time.Millisecond
	// doubtfulTimeout is the same for a master that has just failed to confirm the subscription to
	// the job.
	doubtfulTimeout = 300 * time.Millisecond
	// releaseTimeout is how long a master may take to release a job; nobody waits for it.
	releaseTimeout = 5 * time.Second
	// epochTimeout is how long masters wait for each other's AES epoch.
	epochTimeout = 5 * time.Second
)

// maxDeliver is the largest message of the Publisher service, in bytes; both sides must allow it
// (grpc.MaxRecvMsgSize).
const maxDeliver = 128 << 20

// errNoKey means that this master has no AES key yet.
var errNoKey = errors.New("no AES key yet; wait until the master is ready")

// delivery is the result of one publication.
type delivery struct {
	lost  []string // masters that did not acknowledge
	epoch uint64   // of the AES key that sealed it
	stale uint64   // a newer AES epoch on another master, 0 if none
	ages  []time.Duration
}

// fanOut sends p to the subscribers of every master and waits for the acknowledgements. Masters
// that are not expected to answer get little time: they may recover and read it later.
func (m *Master) fanOut(ctx context.Context, p Publication, epoch uint64,
	doubtful []string) delivery {
	d := delivery{epoch: epoch}
	var mu sync.Mutex
	var all sync.WaitGroup
	request := &masterpb.DeliverRequest{
		Jid: p.JID, Payload: p.Payload, Topics: p.Topics, AesEpoch: epoch,
		HoldMs: p.Hold.Milliseconds(), Nocache: p.NoCache,
	}
	for _, node := range m.others() {
		all.Go(func() {
			timeout := ackTimeout
			if slices.Contains(doubtful, node) {
				timeout = doubtfulTimeout
			}
			reply, err := m.deliver(ctx, node, request, timeout)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				d.lost = append(d.lost, node)
				m.metrics.delivered.WithLabelValues("lost").Inc()
				m.log.Debug("publication not acknowledged", "peer", node, "jid", p.JID, "err", err)
			case reply.Stale:
				d.stale = max(d.stale, reply.AesEpoch)
				m.metrics.delivered.WithLabelValues("stale").Inc()
			default:
				m.metrics.delivered.WithLabelValues("acknowledged").Inc()
			}
			for _, age := range reply.GetLossAgeMs() {
				d.ages = append(d.ages, time.Duration(age)*time.Millisecond)
			}
		})
	}
	traced := m.deps.Traces.Deliver(p.JID)
	traced.End(m.deps.Subscribers.Publish(p), false)
	all.Wait()
	return d
}

func (m *Master) deliver(ctx context.Context, node string, r *masterpb.DeliverRequest,
	timeout time.Duration) (*masterpb.DeliverReply, error) {
	conn, err := m.deps.Peers.Conn(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return masterpb.NewPublisherClient(conn).Deliver(ctx, r, grpc.MaxCallSendMsgSize(maxDeliver))
}

// others lists the ready members except this one.
func (m *Master) others() []string {
	if m.deps.Peers == nil {
		return nil
	}
	var out []string
	self := m.deps.Peers.Self()
	for _, node := range m.deps.Peers.Members() {
		if node != self {
			out = append(out, node)
		}
	}
	return out
}

// publishSealed seals load and sends it to all masters, and again if a master had a newer AES key:
// that master's minions could not read the first one, and nothing may be published under an older
// key.
func (m *Master) publishSealed(ctx context.Context, load value.Map, p Publication,
	doubtful []string) (delivery, error) {
	deadline := time.Now().Add(epochTimeout)
	for {
		payload, epoch, err := m.seal(load)
		if err != nil {
			return delivery{}, err
		}
		p.Payload = payload
		d := m.fanOut(ctx, p, epoch, doubtful)
		if d.stale == 0 {
			return d, nil
		}
		if err := m.waitEpoch(ctx, d.stale, deadline); err != nil {
			return d, fmt.Errorf("publish job %s: %w", p.JID, err)
		}
	}
}

// waitEpoch waits until this master's AES epoch is at least epoch.
func (m *Master) waitEpoch(ctx context.Context, epoch uint64, deadline time.Time) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if s := m.deps.Cluster.Secrets(); len(s.AES) > 0 && s.AES[0].Epoch >= epoch {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("AES epoch %d of a peer did not reach this master; see salt-run cluster.members", epoch)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release ends the hold of a job on all masters.
func (m *Master) release(ctx context.Context, jid string) {
	m.deps.Subscribers.Release(jid)
	var all sync.WaitGroup
	for _, node := range m.others() {
		all.Go(func() {
			conn, err := m.deps.Peers.Conn(node)
			if err != nil {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
			defer cancel()
			// A master that misses this drops the job when the hold ends.
			_, _ = masterpb.NewPublisherClient(conn).Release(ctx,
				&masterpb.ReleaseRequest{Jid: jid})
		})
	}
	all.Wait()
}

// peerLosses caches the losses of the other masters' subscribers. It asks at most once a second,
// for however many jobs.
type peerLosses struct {
	mu    sync.Mutex // held while asking
	asked time.Time
	times []time.Time
}

func (p *peerLosses) losses(ctx context.Context, m *Master) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) < 800*time.Millisecond {
		return p.times
	}
	var times []time.Time
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, node := range m.others() {
		all.Go(func() {
			conn, err := m.deps.Peers.Conn(node)
			if err != nil {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			reply, err := masterpb.NewPublisherClient(conn).Losses(ctx, &masterpb.LossesRequest{})
			if err != nil {
				return
			}
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			for _, age := range reply.AgeMs {
				times = append(times, now.Add(-time.Duration(age)*time.Millisecond))
			}
		})
	}
	all.Wait()
	p.asked, p.times = time.Now(), times
	return times
}
