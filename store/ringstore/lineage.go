package ringstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"
)

// lineage keeps the view, on disk and in memory.
type lineage struct {
	// held during one change of the view, including its disk write; never while calling another
	// master
	mu turn
}

// loadView reads the view that was in force when the store closed, and returns its newest epoch, 0
// without a view.
func (s *Store) loadView() (epoch uint64, err error) {
	b, err := s.disk.Note("lineage")
	if err != nil || b == nil {
		return 0, err
	}
	v, err := rings.Parse(b)
	if err != nil {
		return 0, err
	}
	s.view.Store(v)
	return v.Latest().Epoch(), nil
}

// setView makes next the view: first durable, then in force for all later writes at once. When it
// returns, no write with an epoch older than next's is running on this disk.
func (s *Store) setView(ctx context.Context, next *rings.View) error {
	b, err := next.Marshal()
	if err != nil {
		return fmt.Errorf("write lineage: %w", err)
	}
	if err := s.disk.Fence(ctx, next.Latest().Epoch(), "lineage", b); err != nil {
		return fmt.Errorf("write lineage: %w", err)
	}
	s.view.Store(next)
	return nil
}

// current returns the view to use. If the cluster has agreed on a newer ring it first takes that
// over. It waits for other masters if this one has no view yet.
func (s *Store) current(ctx context.Context) (*rings.View, error) {
	ring := s.peers.Ring()
	v := s.view.Load()
	if v != nil && (ring == nil || ring.Epoch() <= v.Latest().Epoch()) {
		return v, nil
	}
	if v != nil {
		return s.extend(ctx, ring)
	}
	if ring == nil {
		return nil, fmt.Errorf("%w (it is in no cluster)", ErrNotReady)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadyTimeout)
	defer cancel()
	for {
		v, err := s.adopt(ctx)
		if err == nil {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", ErrNotReady, err)
		case <-s.closed:
			return nil, ErrClosed
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// turn is a mutex that is held across waits for the disk. Because it is a channel, a test on fake
// time sees goroutines that wait for it.
type turn chan struct{}

// Lock waits for the turn.
func (t turn) Lock() { t <- struct{}{} }

// Unlock releases the turn.
func (t turn) Unlock() { <-t }

// extend adds a newer ring to the view.
func (s *Store) extend(ctx context.Context, ring *hashring.Ring) (*rings.View, error) {
	s.lineage.mu.Lock()
	defer s.lineage.mu.Unlock()
	v := s.view.Load()
	if v == nil {
		return nil, ErrNotReady
	}
	if ring.Epoch() <= v.Latest().Epoch() {
		return v, nil
	}
	if ring.Partitions() != v.Latest().Partitions() {
		return nil, fmt.Errorf("take over ring %d: %w", ring.Epoch(), hashring.ErrPartitions)
	}
	next := &rings.View{Rings: append(slices.Clone(v.Rings), ring), Base: v.Base}
	if err := s.setView(ctx, next); err != nil {
		return nil, err
	}
	s.log.Info("ring changes", "epoch", ring.Epoch(), "n", len(ring.Members()), "base",
		v.Base.Epoch())
	s.wake()
	return next, nil
}

// adopt gives a store that has never had a ring its first view. A lone member starts with its ring.
// Any other member takes over the view of some member, or starts with the present ring if every
// member of the ring says that it has none either.
func (s *Store) adopt(ctx context.Context) (*rings.View, error) {
	ring := s.peers.Ring()
	if ring == nil || len(ring.Members()) == 0 {
		return nil, errors.New("no ring yet")
	}
	next := &rings.View{Rings: []*hashring.Ring{ring}, Base: ring}
	for _, node := range ring.Members() {
		if node == s.self {
			continue
		}
		reply, err := s.remote.Status(ctx, node, ring.Epoch())
		if err != nil {
			next = nil // this one may have a view; another one can still tell
			continue
		}
		if reply.Base == 0 {
			continue
		}
		if reply.Epoch < ring.Epoch() {
			next = nil // it may drop rings before it hears of ours
			continue
		}
		v, err := rings.Of(reply)
		if err != nil {
			return nil, fmt.Errorf("take over ring of %s: %w", node, err)
		}
		next = v
		break
	}
	if next == nil {
		return nil, errors.New("no member of the ring answered what it knows")
	}
	s.lineage.mu.Lock()
	defer s.lineage.mu.Unlock()
	if v := s.view.Load(); v != nil {
		return v, nil
	}
	if err := s.setView(ctx, next); err != nil {
		return nil, err
	}
	s.log.Info("ring taken over", "epoch", next.Latest().Epoch(), "n", len(next.Latest().Members()),
		"base", next.Base.Epoch())
	s.wake()
	return next, nil
}

// rebase moves reads to the newest ring, unless the store was replaced meanwhile, and has none.
func (s *Store) rebase(ctx context.Context, epoch uint64) error {
	s.lineage.mu.Lock()
	defer s.lineage.mu.Unlock()
	v := s.view.Load()
	if v == nil || v.Latest().Epoch() != epoch || v.Base.Epoch() == epoch {
		return nil
	}
	if err := s.setView(ctx, &rings.View{Rings: v.Rings, Base: v.Latest()}); err != nil {
		return err
	}
	s.log.Info("ring is filled", "epoch", epoch)
	return nil
}

// leaveOut drops the rings that are neither the newest nor among the bases; same exception.
func (s *Store) leaveOut(ctx context.Context, epoch uint64, bases map[uint64]bool) error {
	s.lineage.mu.Lock()
	defer s.lineage.mu.Unlock()
	v := s.view.Load()
	if v == nil || v.Latest().Epoch() != epoch {
		return nil
	}
	keep := slices.DeleteFunc(slices.Clone(v.Rings), func(r *hashring.Ring) bool {
		return r.Epoch() != epoch && r.Epoch() != v.Base.Epoch() && !bases[r.Epoch()]
	})
	if len(keep) == len(v.Rings) {
		return nil
	}
	if err := s.setView(ctx, &rings.View{Rings: keep, Base: v.Base}); err != nil {
		return err
	}
	if len(keep) == 1 {
		s.log.Info("ring is settled", "epoch", epoch)
	}
	return nil
}

// takeOver replaces this master's rings by those of a member that has gone on without it.
func (s *Store) takeOver(ctx context.Context, reply *ringpb.StatusReply) error {
	next, err := rings.Of(reply)
	if err != nil {
		return err
	}
	s.lineage.mu.Lock()
	defer s.lineage.mu.Unlock()
	if v := s.view.Load(); v == nil || !rings.GaveUp(reply, v) {
		return nil
	}
	if err := s.setView(ctx, next); err != nil {
		return err
	}
	s.syncing.reset() // what was filled from the former base does not count
	s.log.Info("ring taken over: the others went on without this master", "epoch",
		next.Latest().Epoch(), "base", next.Base.Epoch())
	s.wake()
	return nil
}

// readTries is how often a read is tried because the ring changed meanwhile.
const readTries = 8

// notOvertaken reads. If the others have given up the ring that it read by, it takes over theirs
// and reads again.
func (s *Store) notOvertaken(ctx context.Context, read func() error) error {
	for try := 1; ; try++ {
		err := read()
		if !rings.IsLeft(err) || try == readTries {
			return err
		}
		s.met.stale.Inc()
		v := s.view.Load()
		for _, node := range s.others() {
			if v == nil || !s.peers.Alive(node) {
				continue
			}
			if reply, err := s.remote.Status(ctx, node, v.Latest().Epoch()); err == nil &&
				rings.GaveUp(reply, v) {
				if err := s.takeOver(ctx, reply); err != nil {
					return err
				}
				break
			}
		}
	}
}
