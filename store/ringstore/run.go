package ringstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"
)

// heard keeps what this master knows of the others: their last status, and which of them it must
// still compare copies with.
type heard struct {
	mu     sync.Mutex // guards all below
	peers  map[string]*peer
	missed uint64 // number of calls of miss
}

type peer struct {
	status *ringpb.StatusReply // last answer; nil without one
	at     time.Time           // of status
	alive  bool                // at the last check
	// since when it has been out of contact, while this master had a majority; zero if it is alive
	lost time.Time
	back time.Time // when it was found alive again
	// writes may have missed one of the two masters since they last compared
	dirty bool
}

func (h *heard) start(members []string, self string) {
	h.peers = map[string]*peer{}
	for _, m := range members {
		if m != self {
			h.peers[m] = &peer{dirty: true}
		}
	}
}

// caughtUp reports whether this master has compared copies with every live one since it, or that
// other one, came back.
func (h *heard) caughtUp(alive func(string) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n, p := range h.peers {
		if p.dirty && alive(n) {
			return false
		}
	}
	return true
}

// look notes which masters are alive now. It returns the live ones to compare copies with, and the
// value of missed to pass to clean afterwards. A master without a majority may itself be the one
// that is cut off, so that time does not count as the others' absence.
func (h *heard) look(nodes []string, alive func(string) bool, at time.Time) (dirty []string,
	missed uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n := range h.peers {
		if !slices.Contains(nodes, n) {
			delete(h.peers, n)
		}
	}
	most := majority(nodes, alive)
	for _, n := range nodes {
		p := h.peers[n]
		if p == nil {
			p = &peer{dirty: true}
			h.peers[n] = p
		}
		now := alive(n)
		if !now {
			p.dirty = true
			if p.lost.IsZero() || !most {
				p.lost = at
			}
		} else if !p.lost.IsZero() {
			p.lost, p.back = time.Time{}, at
		}
		p.alive = now
		if now && p.dirty {
			dirty = append(dirty, n)
		}
	}
	return dirty, h.missed
}

// majority reports whether this master and those of the others that are alive are most of all.
func majority(others []string, alive func(string) bool) bool {
	up := 1
	for _, n := range others {
		if alive(n) {
			up++
		}
	}
	return 2*up > len(others)+1
}

// longAway returns the masters that have been out of contact for at least long. calm is false if
// another one is out of contact too, or if one in contact owes copies, takes none, is being filled,
// or has not reported its state since it came back.
func (h *heard) longAway(nodes []string, alive func(string) bool, now time.Time,
	long time.Duration) (gone []string, calm bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range nodes {
		p := h.peers[n]
		switch {
		case p == nil:
			return nil, false
		case alive(n):
			if !p.lost.IsZero() || p.status == nil || !p.at.After(p.back) || p.status.Owed > 0 ||
				p.status.Refilling || p.status.Refuses != "" {
				return nil, false
			}
		case p.lost.IsZero() || now.Sub(p.lost) < long:
			return nil, false
		default:
			gone = append(gone, n)
		}
	}
	return gone, true
}

// miss notes that copies may be missing here, so that all others must be compared with.
func (h *heard) miss() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missed++
	for _, p := range h.peers {
		p.dirty = true
	}
}

// missedNothingSince reports whether miss was not called since look returned missed.
func (h *heard) missedNothingSince(missed uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.missed == missed
}

// isDirty reports whether copies must be compared with a node.
func (h *heard) isDirty(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peers[node]
	return p == nil || p.dirty
}

// clean notes that copies were compared with a node. It has no effect if miss was called since
// look: the compared copies may have been replaced meanwhile.
func (h *heard) clean(node string, missed uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peers[node]; p != nil && p.alive && h.missed == missed {
		p.dirty = false
	}
}

func (h *heard) said(node string, reply *ringpb.StatusReply, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peers[node]; p != nil {
		p.status, p.at = reply, at
	}
}

func (h *heard) statusOf(node string) (reply *ringpb.StatusReply, alive bool, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peers[node]; p != nil {
		return p.status, p.alive, p.at
	}
	return nil, false, time.Time{}
}

// Run keeps the copies equal until ctx ends: it takes over rings, hands over hints, compares copies
// with masters that came back, fills partitions on a ring change, and drops expired records. It
// returns nil when ctx ends.
func (s *Store) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, loop := range []func(context.Context){s.ringLoop, s.statusLoop, s.handOverLoop,
		s.expireLoop, s.scrubLoop} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			loop(ctx)
		}()
	}
	wg.Wait()
	return nil
}

// others returns all other masters: members of the cluster and of the newest ring. A master that is
// only in an older ring was removed; this one does not wait for it.
func (s *Store) others() []string {
	out := slices.Clone(s.peers.Members())
	if v := s.view.Load(); v != nil {
		out = append(out, v.Latest().Members()...)
	} else if r := s.peers.Ring(); r != nil {
		out = append(out, r.Members()...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(n string) bool { return n == s.self })
}

// ringLoop follows the ring, and fills and compares copies, one task at a time, because each reads
// a whole disk.
func (s *Store) ringLoop(ctx context.Context) {
	tick := time.NewTicker(s.opts.Tick)
	defer tick.Stop()
	// when to compare with masters that were not away, by the monotonic clock
	all := time.Now().Add(s.opts.RepairEvery)
	for n := 0; ; n++ {
		now := time.Now()
		if s.ringStep(ctx, !now.Before(all), n%tidyEvery == 0) {
			s.wake()
		}
		if !now.Before(all) {
			all = now.Add(s.opts.RepairEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		case <-tick.C:
		case <-s.kick:
		}
	}
}

// errClock puts off what depends on the time.
var errClock = errors.New("the clock was not yet compared with those of other masters")

// tidyEvery is the number of steps between searches for records that this master no longer owns.
// One search is not enough: masters that settle later still write to the old owners.
const tidyEvery = 25

// ringStep does the work that is due, with compareAll and tidy if set; again asks for another step
// at once.
func (s *Store) ringStep(ctx context.Context, compareAll, tidy bool) (again bool) {
	// A master that is gone for good must not block a step, so every step is bounded.
	stepCtx, cancel := context.WithTimeout(ctx, s.opts.StreamTimeout)
	defer cancel()
	v, err := s.current(stepCtx)
	others := s.others()
	full := s.opts.Room() // then nothing is fetched, and copies are refused
	if full == nil && !s.opts.ClockJudged() {
		full = errClock // records could be dropped that only seem to have expired
	}
	if full != nil {
		s.heard.miss()
	}
	dirty, missed := s.heard.look(others, s.peers.Alive, s.opts.Now())
	if err != nil {
		s.log.Debug("waiting for the ring", "err", err)
		return false
	}
	if err := s.keepContact(stepCtx, others); err != nil && ctx.Err() == nil {
		s.log.Debug("unknown whether this master was away too long; trying again", "err", err)
	}
	if s.stale.Load() || s.view.Load() != v {
		return false
	}
	s.remote.Keep(func(n string) bool { return slices.Contains(others, n) })
	if !v.Settled() || v.Base != v.Latest() {
		if full == nil && s.syncing.done() < v.Latest().Epoch() && v.Latest().Has(s.self) {
			if err := s.fill(stepCtx, v); err != nil && ctx.Err() == nil {
				s.log.Debug("partitions not filled; trying again", "err", err)
			} else if err == nil {
				s.log.Info("partitions are filled", "epoch", v.Latest().Epoch())
				again = true
			}
		}
		if err := s.settle(stepCtx, v, others); err != nil && ctx.Err() == nil {
			s.log.Debug("ring not settled; trying again", "err", err)
		}
	} else {
		s.syncing.mu.Lock()
		s.syncing.completed = max(s.syncing.completed, v.Latest().Epoch())
		s.syncing.pending = 0
		s.syncing.mu.Unlock()
		if tidy {
			if err := s.dropForeign(stepCtx, v); err != nil && ctx.Err() == nil {
				s.log.Warn("copies that other masters own now not dropped; trying again", "err", err)
			}
		}
	}
	if compareAll {
		dirty = slices.DeleteFunc(others, func(n string) bool { return !s.peers.Alive(n) })
	}
	if full != nil && len(dirty) > 0 {
		s.log.Debug("copies not compared; trying again", "err", full)
		return again
	}
	for _, node := range dirty {
		if err := s.compareWith(stepCtx, v, node); err != nil {
			if ctx.Err() == nil {
				s.log.Debug("copies not compared; trying again", "node", node, "err", err)
			}
			continue
		}
		s.heard.clean(node, missed)
		if err := s.disk.Filled(stepCtx, node); err != nil && ctx.Err() == nil {
			s.log.Debug("note that a master lacks tombstones not removed", "node", node, "err", err)
		}
	}
	if s.disk.Refilling() {
		if err := s.endRefill(stepCtx, v, missed); err != nil && ctx.Err() == nil {
			s.log.Warn("end of fetching all records not noted; trying again", "err", err)
		}
	}
	return again
}

// compareWith fetches from a master the records that this one lacks, in the partitions that this
// one owns.
func (s *Store) compareWith(ctx context.Context, v *rings.View, node string) error {
	var both []int
	for p := range v.Latest().Partitions() {
		if slices.Contains(v.Owners(p), s.self) {
			both = append(both, p)
		}
	}
	return s.pullFrom(ctx, node, both, 0, "comparison")
}

// settle asks all members for their progress, and moves this master's base and list of rings on
// when that is safe.
func (s *Store) settle(ctx context.Context, v *rings.View, others []string) error {
	epoch := v.Latest().Epoch()
	bases := map[uint64]bool{}
	filled, all := s.syncing.done() >= epoch && !s.disk.Refilling() || !v.Latest().Has(s.self), true
	for _, node := range others {
		if !s.peers.Alive(node) {
			// Don't wait for a master that has lost its share of the data: when it is back, the
			// others refuse its reads by a ring that they have given up, and it takes over theirs.
			all = all && !v.Latest().Has(node)
			filled = filled && !v.Latest().Has(node)
			continue
		}
		reply, err := s.remote.Status(ctx, node, epoch)
		if err != nil {
			all = false
			filled = filled && !v.Latest().Has(node)
			continue
		}
		s.heard.said(node, reply, s.opts.Now())
		if reply.Epoch != epoch || reply.Base == 0 {
			all = false
		}
		if v.Latest().Has(node) && (reply.Epoch != epoch || reply.Completed != epoch) {
			filled = false
		}
		bases[reply.Base] = true
		if rings.GaveUp(reply, v) {
			return s.takeOver(ctx, reply)
		}
	}
	var errs []error
	if filled {
		errs = append(errs, s.rebase(ctx, epoch))
	}
	if all {
		errs = append(errs, s.leaveOut(ctx, epoch, bases))
	}
	return errors.Join(errs...)
}

// knownEpoch takes over a newer ring from this master's cluster state, and returns the newest epoch
// here; 0 if there was never a ring.
func (s *Store) knownEpoch(ctx context.Context) uint64 {
	v := s.view.Load()
	if v == nil {
		return 0
	}
	if r := s.peers.Ring(); r != nil && r.Epoch() > v.Latest().Epoch() {
		if next, err := s.extend(ctx, r); err == nil {
			v = next
		}
	}
	return v.Latest().Epoch()
}

// status is this master's answer to Status.
func (s *Store) status() *ringpb.StatusReply {
	reply := &ringpb.StatusReply{Clock: s.clock.Read()}
	if full := s.opts.Room(); full != nil {
		reply.Refuses = full.Error()
	}
	if v := s.view.Load(); v != nil {
		reply.Epoch, reply.Base = v.Latest().Epoch(), v.Base.Epoch()
		for _, r := range v.Rings {
			reply.Rings = append(reply.Rings, &ringpb.RingShape{
				Epoch: r.Epoch(), Members: r.Members(), Partitions: uint32(r.Partitions()),
				Replicas: uint32(r.Replicas()),
			})
		}
	}
	records, bytes := s.disk.Totals()
	hints, under := s.disk.OwedTotals()
	reply.Records, reply.Bytes, reply.Owed, reply.Under = uint64(max(records, 0)), uint64(max(bytes,
		0)), uint64(hints), uint64(under)
	s.syncing.mu.Lock()
	defer s.syncing.mu.Unlock()
	reply.Completed, reply.Pending, reply.Moved = s.syncing.completed, uint32(s.syncing.pending),
		s.syncing.moved
	// Also those that this master does not count as members, for it may not have heard of them yet.
	reply.Lacking = s.disk.Lacking()
	reply.Forgotten = uint64(s.disk.Forgotten())
	if reply.Refilling = s.disk.Refilling(); reply.Refilling {
		reply.Completed = 0
	}
	if s.syncing.pending > 0 {
		reply.Changing, reply.Filling = uint32(s.syncing.changing),
			uint64(s.opts.Now().Sub(s.syncing.begun).Microseconds())
	}
	return reply
}

// isBehind reports whether this master may lack records.
func (s *Store) isBehind() bool {
	return s.disk.Refilling() || s.stale.Load() || !s.heard.caughtUp(s.peers.Alive)
}

// statusLoop asks the others for their state, for the figures of Info and to exchange clocks
// steadily.
func (s *Store) statusLoop(ctx context.Context) {
	tick := time.NewTicker(s.opts.StatusEvery)
	defer tick.Stop()
	for {
		var epoch uint64
		if v := s.view.Load(); v != nil {
			epoch = v.Latest().Epoch()
		}
		var wg sync.WaitGroup
		for _, node := range s.others() {
			if !s.peers.Alive(node) {
				continue
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				if reply, err := s.remote.Status(ctx, node, epoch); err == nil {
					s.heard.said(node, reply, s.opts.Now())
				}
			}()
		}
		wg.Wait()
		select {
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		case <-tick.C:
		}
	}
}

// dropForeign removes the records of partitions that this master no longer owns, once the ring is
// settled and this master owes nothing. A master outside the ring keeps its records: others will
// ask for them, or it will be back in the ring.
func (s *Store) dropForeign(ctx context.Context, v *rings.View) error {
	ring := v.Latest()
	if hints, _ := s.disk.OwedTotals(); hints > 0 || !ring.Has(s.self) {
		return nil
	}
	n, err := s.disk.DropPartitions(ctx, ring.Epoch(),
		func(p int) bool { return !ring.Owns(s.self, p) })
	if n > 0 {
		s.log.Info("dropped copies that other masters own", "epoch", ring.Epoch(), "n", n)
	}
	return err
}
