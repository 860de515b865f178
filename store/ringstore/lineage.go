package ringstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/ringpb"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// view is the rings in play at one moment: immutable.
//
// While the ring changes, writes go to the owners in every ring of the list, with a quorum in each,
// and reads ask the owners in base. Base moves to the newest ring when all its members have filled
// their partitions; an older ring is left out when no member of the cluster has it as its base any
// more. So whichever member writes, each member's base has every acknowledged record. DESIGN.md has
// the argument.
type view struct {
	rings []*hashring.Ring // ascending epochs, the last is the newest; never empty
	base  *hashring.Ring   // one of rings
}

func (v *view) latest() *hashring.Ring { return v.rings[len(v.rings)-1] }

// settled reports whether no change of the ring is under way.
func (v *view) settled() bool { return len(v.rings) == 1 }

// owners returns those of a partition in all rings, the newest ring's first.
func (v *view) owners(partition int) []string {
	if len(v.rings) == 1 {
		return v.rings[0].Owners(partition)
	}
	var out []string
	for i := len(v.rings) - 1; i >= 0; i-- {
		for _, o := range v.rings[i].Owners(partition) {
			if !slices.Contains(out, o) {
				out = append(out, o)
			}
		}
	}
	return out
}

func (v *view) ring(epoch uint64) *hashring.Ring {
	for _, r := range v.rings {
		if r.Epoch() == epoch {
			return r
		}
	}
	return nil
}

// members returns all nodes of all rings, sorted.
func (v *view) members() []string {
	var out []string
	for _, r := range v.rings {
		out = append(out, r.Members()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lineage is a view on disk and between masters.
type lineage struct {
	Rings []shape `json:"rings"`
	Base  uint64  `json:"base"`
}

type shape struct {
	Epoch      uint64   `json:"epoch"`
	Members    []string `json:"members"`
	Partitions int      `json:"partitions"`
	Replicas   int      `json:"replicas"`
}

func (v *view) lineage() lineage {
	l := lineage{Base: v.base.Epoch()}
	for _, r := range v.rings {
		l.Rings = append(l.Rings, shape{r.Epoch(), r.Members(), r.Partitions(), r.Replicas()})
	}
	return l
}

// maxShapes and maxShapeMembers bound what another master can make us build.
const (
	maxShapes          = 1024
	maxShapeMembers    = 4096
	maxShapePartitions = 1 << 16
)

func (l lineage) view() (*view, error) {
	if len(l.Rings) == 0 {
		return nil, fmt.Errorf("lineage of %d rings: %w", len(l.Rings), ErrCorrupt)
	}
	v := &view{}
	for _, s := range l.Rings {
		if len(s.Members) > maxShapeMembers || s.Partitions < 1 ||
			s.Partitions > maxShapePartitions {
			return nil, fmt.Errorf("ring of %d members and %d partitions: %w", len(s.Members),
				s.Partitions, ErrCorrupt)
		}
		v.rings = append(v.rings, hashring.New(s.Members, s.Partitions, s.Replicas, s.Epoch))
	}
	slices.SortFunc(v.rings, func(a, b *hashring.Ring) int {
		return cmp.Compare(a.Epoch(),
			b.Epoch())
	})
	if v.base = v.ring(l.Base); v.base == nil {
		return nil, fmt.Errorf("lineage without its base %d: %w", l.Base, ErrCorrupt)
	}
	return v, nil
}

// rings keeps the view, on disk and in memory.
type rings struct {
	// held over one change of the view, its disk write included; never while calling another master
	mu turn
}

// loadView reads the view that was in force when the store closed, and returns its newest epoch; 0
// without one.
func (s *Store) loadView() (epoch uint64, err error) {
	b, err := s.disk.Note("lineage")
	if err != nil || b == nil {
		return 0, err
	}
	var l lineage
	if err := json.Unmarshal(b, &l); err != nil {
		return 0, fmt.Errorf("read lineage: %w: %w", ErrCorrupt, err)
	}
	v, err := l.view()
	if err != nil {
		return 0, fmt.Errorf("read lineage: %w", err)
	}
	s.view.Store(v)
	return v.latest().Epoch(), nil
}

// setView makes next the view: durable first, then in force for all later writes at once. When it
// returns no write of an epoch older than next's is under way on this disk any more.
func (s *Store) setView(ctx context.Context, next *view) error {
	b, err := json.Marshal(next.lineage())
	if err != nil {
		return fmt.Errorf("write lineage: %w", err)
	}
	if err := s.disk.Fence(ctx, next.latest().Epoch(), "lineage", b); err != nil {
		return fmt.Errorf("write lineage: %w", err)
	}
	s.view.Store(next)
	return nil
}

// current returns the view to act on, having taken over the ring that the cluster agreed on, if
// that is newer. It waits for other masters when this one has none yet.
func (s *Store) current(ctx context.Context) (*view, error) {
	ring := s.peers.Ring()
	v := s.view.Load()
	if v != nil && (ring == nil || ring.Epoch() <= v.latest().Epoch()) {
		return v, nil
	}
	if v != nil {
		return s.extend(ctx, ring)
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

// turn is a mutex that is held across waits for the disk. Being a channel, it lets a test on fake
// time see that who wants it waits.
type turn chan struct{}

// Lock waits for the turn.
func (t turn) Lock() { t <- struct{}{} }

// Unlock gives it to the next one.
func (t turn) Unlock() { <-t }

// extend adds a newer ring to the view.
func (s *Store) extend(ctx context.Context, ring *hashring.Ring) (*view, error) {
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	v := s.view.Load()
	if v == nil {
		return nil, ErrNotReady
	}
	if ring.Epoch() <= v.latest().Epoch() {
		return v, nil
	}
	if ring.Partitions() != v.latest().Partitions() {
		return nil, fmt.Errorf("take over ring %d: %w", ring.Epoch(), hashring.ErrPartitions)
	}
	next := &view{rings: append(slices.Clone(v.rings), ring), base: v.base}
	if err := s.setView(ctx, next); err != nil {
		return nil, err
	}
	s.log.Info("ring changes", "epoch", ring.Epoch(), "n", len(ring.Members()), "base",
		v.base.Epoch())
	s.wake()
	return next, nil
}

// adopt gives a store that has never seen a ring its first view: a lone member starts with its
// ring, any other one takes over what some member knows, or starts afresh when every member of the
// ring says that it knows none either.
func (s *Store) adopt(ctx context.Context) (*view, error) {
	ring := s.peers.Ring()
	if ring == nil || len(ring.Members()) == 0 {
		return nil, errors.New("no ring yet")
	}
	next := &view{rings: []*hashring.Ring{ring}, base: ring}
	for _, node := range ring.Members() {
		if node == s.self {
			continue
		}
		reply, err := s.askStatus(ctx, node, ring.Epoch())
		if err != nil {
			next = nil // this one may know; another one can still tell
			continue
		}
		if reply.Base == 0 {
			continue
		}
		if reply.Epoch < ring.Epoch() {
			next = nil // it may leave out rings before it hears of ours
			continue
		}
		v, err := viewOf(reply)
		if err != nil {
			return nil, fmt.Errorf("take over ring of %s: %w", node, err)
		}
		next = v
		break
	}
	if next == nil {
		return nil, errors.New("no member of the ring answered what it knows")
	}
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	if v := s.view.Load(); v != nil {
		return v, nil
	}
	if err := s.setView(ctx, next); err != nil {
		return nil, err
	}
	s.log.Info("ring taken over", "epoch", next.latest().Epoch(), "n", len(next.latest().Members()),
		"base", next.base.Epoch())
	s.wake()
	return next, nil
}

func viewOf(reply *ringpb.StatusReply) (*view, error) {
	if len(reply.Rings) > maxShapes {
		return nil, fmt.Errorf("lineage of %d rings: %w", len(reply.Rings), ErrCorrupt)
	}
	l := lineage{Base: reply.Base}
	for _, r := range reply.Rings {
		l.Rings = append(l.Rings, shape{r.Epoch, r.Members, int(r.Partitions), int(r.Replicas)})
	}
	return l.view()
}

// rebase moves reads to the newest ring.
func (s *Store) rebase(ctx context.Context, epoch uint64) error {
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	v := s.view.Load()
	if v.latest().Epoch() != epoch || v.base.Epoch() == epoch {
		return nil
	}
	if err := s.setView(ctx, &view{rings: v.rings, base: v.latest()}); err != nil {
		return err
	}
	s.log.Info("ring is filled", "epoch", epoch)
	return nil
}

// leaveOut drops the rings that are neither the newest nor among the bases.
func (s *Store) leaveOut(ctx context.Context, epoch uint64, bases map[uint64]bool) error {
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	v := s.view.Load()
	if v.latest().Epoch() != epoch {
		return nil
	}
	keep := slices.DeleteFunc(slices.Clone(v.rings), func(r *hashring.Ring) bool {
		return r.Epoch() != epoch && r.Epoch() != v.base.Epoch() && !bases[r.Epoch()]
	})
	if len(keep) == len(v.rings) {
		return nil
	}
	if err := s.setView(ctx, &view{rings: keep, base: v.base}); err != nil {
		return err
	}
	if len(keep) == 1 {
		s.log.Info("ring is settled", "epoch", epoch)
	}
	return nil
}

// isLeft reports whether another master refused a read because the ring changed since it was made.
func isLeft(err error) bool {
	return errors.Is(err, errLeft) || status.Code(err) == codes.FailedPrecondition
}

// gaveUp reports whether a member that knows all of this one's rings has dropped its base from its
// list. It did so while this master was away and without a share of the data.
func gaveUp(reply *ringpb.StatusReply, v *view) bool {
	if reply.Base == 0 || reply.Epoch < v.latest().Epoch() {
		return false
	}
	return !slices.ContainsFunc(reply.Rings,
		func(r *ringpb.RingShape) bool { return r.Epoch == v.base.Epoch() })
}

// takeOver makes the rings of a member that has gone on without this one its own.
func (s *Store) takeOver(ctx context.Context, reply *ringpb.StatusReply) error {
	next, err := viewOf(reply)
	if err != nil {
		return err
	}
	s.rings.mu.Lock()
	defer s.rings.mu.Unlock()
	if v := s.view.Load(); v == nil || !gaveUp(reply, v) {
		return nil
	}
	if err := s.setView(ctx, next); err != nil {
		return err
	}
	s.log.Info("ring taken over; the others have gone on without this master", "epoch",
		next.latest().Epoch(), "base", next.base.Epoch())
	s.wake()
	return nil
}

// notOvertaken reads, and reads again by the rings of the others if they have given up the one that
// it read by.
func (s *Store) notOvertaken(ctx context.Context, read func() error) error {
	for try := 1; ; try++ {
		err := read()
		if !isLeft(err) || try == askTries {
			return err
		}
		s.met.stale.Inc()
		v := s.view.Load()
		for _, node := range s.others() {
			if v == nil || !s.peers.Alive(node) {
				continue
			}
			if reply, err := s.askStatus(ctx, node, v.latest().Epoch()); err == nil &&
				gaveUp(reply, v) {
				if err := s.takeOver(ctx, reply); err != nil {
					return err
				}
				break
			}
		}
	}
}
