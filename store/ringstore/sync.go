package ringstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/remote"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"
)

// syncing is this master's progress with filling its partitions.
type syncing struct {
	mu        sync.Mutex // guards all below
	completed uint64     // the newest ring of which all own partitions are filled
	pending   int        // partitions not yet filled
	changing  int        // of these when filling began
	moved     uint64     // bytes fetched for the pending ring
	begun     time.Time  // of filling
}

func (y *syncing) reset() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.completed, y.pending = 0, 0
}

func (y *syncing) left() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.pending
}

func (y *syncing) done() uint64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.completed
}

// comparedAtOnce is the number of partitions per request that compares cell by cell.
const comparedAtOnce = 16

// pullFrom compares partitions with another master and fetches the records that this one lacks. It
// fails while that master's ring is older than epoch, so that no write by an older ring can miss
// the comparison.
func (s *Store) pullFrom(ctx context.Context, node string, partitions []int, epoch uint64,
	by string) error {
	if len(partitions) == 0 {
		return nil
	}
	select {
	case <-s.disk.Counted():
	case <-ctx.Done():
		return ctx.Err()
	}
	list := make([]uint32, len(partitions))
	wanted := make(map[int]bool, len(partitions))
	for i, p := range partitions {
		list[i] = uint32(p)
		wanted[p] = true
	}
	reply, err := s.remote.Digest(ctx, node, &ringpb.DigestRequest{Epoch: epoch, Partitions: list})
	if err != nil {
		return err
	}
	if reply.Epoch < epoch {
		return fmt.Errorf("compare with %s: it knows ring %d, not yet %d", node, reply.Epoch, epoch)
	}
	mine := map[uint16]disk.Sum{}
	for _, x := range s.disk.Digest(0, wanted, false) {
		mine[x.Partition] = x
	}
	var differ []uint32
	for _, c := range reply.Cells {
		if wanted[int(c.Partition)] && mine[uint16(c.Partition)].Sum != c.Sum {
			differ = append(differ, c.Partition)
		}
	}
	for part := range slices.Chunk(differ, comparedAtOnce) {
		if err := s.pullPartitions(ctx, node, part, epoch, by); err != nil {
			return err
		}
	}
	if held := slices.DeleteFunc(reply.Held,
		func(p uint32) bool { return !wanted[int(p)] }); len(held) > 0 {
		req := &ringpb.ScanRequest{Epoch: epoch, Partitions: held, Held: true}
		return s.pullScan(ctx, node, req,
			func(records []Record) error { return s.take(ctx, records, by) })
	}
	return nil
}

// pullPartitions compares cell by cell, then key by key, and fetches the records that this master
// lacks.
func (s *Store) pullPartitions(ctx context.Context, node string, partitions []uint32, epoch uint64,
	by string) error {
	reply, err := s.remote.Digest(ctx, node,
		&ringpb.DigestRequest{Epoch: epoch, Partitions: partitions,
			ByCell: true})
	if err != nil {
		return err
	}
	mine := map[disk.CellID]uint64{}
	for _, x := range s.disk.Digest(0, partitionSet(partitions), true) {
		mine[x.CellID] = x.Sum
	}
	req := &ringpb.ScanRequest{Epoch: epoch, KeysOnly: true}
	for _, c := range reply.Cells {
		id := disk.CellID{Bucket: c.Bucket, Space: Space(c.Space), Partition: uint16(c.Partition)}
		if mine[id] != c.Sum {
			req.Cells = append(req.Cells, c)
		}
	}
	if len(req.Cells) == 0 {
		return nil
	}
	return s.pullScan(ctx, node, req, func(keys []Record) error {
		var lack []Record
		for i := range keys {
			have, found, err := s.disk.Get(keys[i].Key, keys[i].Partition)
			if err != nil {
				return err
			}
			if !found || disk.Wins(keys[i].Flags, keys[i].Version, have.Flags, have.Version) {
				lack = append(lack, keys[i])
			}
		}
		for part := range slices.Chunk(lack, maxKeys/4) {
			if err := s.fetchKeys(ctx, node, part, epoch, by); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) pullScan(ctx context.Context, node string, req *ringpb.ScanRequest,
	fn func([]Record) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StreamTimeout)
	defer cancel()
	return s.remote.Scan(ctx, node, req, fn)
}

func (s *Store) fetchKeys(ctx context.Context, node string, keys []Record, epoch uint64,
	by string) error {
	req := &ringpb.FetchRequest{Epoch: epoch}
	for i := range keys {
		k := &keys[i]
		req.Keys = append(req.Keys, &ringpb.Key{Space: uint32(k.Space), Place: []byte(k.Place),
			Name: []byte(k.Name), Partition: uint32(k.Partition)})
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.StreamTimeout)
	defer cancel()
	_, err := s.remote.Fetch(ctx, node, req,
		func(records []Record) error { return s.take(ctx, records, by) })
	return err
}

// take merges fetched records into this disk and keeps to the transfer rate. The records are
// durable when it returns.
func (s *Store) take(ctx context.Context, records []Record, by string) error {
	bytes := 0
	changes := make([]disk.Change, 0, len(records))
	for i := range records {
		if err := remote.Check(&records[i], s.opts.MaxRecord); err != nil {
			return err
		}
		s.clock.Observe(records[i].Version.Clock)
		bytes += len(records[i].Value) + len(records[i].Name) + len(records[i].Place) + 64
		changes = append(changes, disk.Change{Record: records[i]})
	}
	if err := s.disk.Commit(ctx, &disk.Write{Changes: changes}); err != nil {
		return err
	}
	s.met.repaired.WithLabelValues(by).Add(float64(len(changes)))
	s.met.fetched.Add(float64(bytes))
	s.syncing.mu.Lock()
	s.syncing.moved += uint64(bytes)
	s.syncing.mu.Unlock()
	return pause(ctx,
		time.Duration(float64(bytes)/float64(s.opts.TransferRate)*float64(time.Second)))
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fill brings this master's partitions of the newest ring up to date from all live members. It
// returns nil if, for each partition whose owners change, enough owners of the base ring answered
// that no acknowledged record is missing.
func (s *Store) fill(ctx context.Context, v *rings.View) error {
	next := v.Latest()
	var todo []int
	for _, p := range hashring.Changed(v.Base, next) {
		if next.Owns(s.self, p) {
			todo = append(todo, p)
		}
	}
	s.syncing.mu.Lock()
	if s.syncing.pending == 0 {
		s.syncing.begun, s.syncing.moved = s.opts.Now(), 0
	}
	s.syncing.pending, s.syncing.changing = len(todo), len(todo)
	s.syncing.mu.Unlock()
	// The newest epoch is already in force here, so this master's own writes by older ones can't
	// miss the comparison either.
	var errs []error
	left := 0
	for part := range slices.Chunk(todo, 32) {
		heard := map[string]bool{s.self: true}
		for _, node := range v.Members() {
			if node == s.self || !s.alive(node) {
				continue
			}
			if err := s.pullFrom(ctx, node, part, next.Epoch(), "transfer"); err != nil {
				errs = append(errs, err)
				continue
			}
			heard[node] = true
		}
		for _, p := range part {
			if s.enoughHeard(v, p, heard) {
				s.syncing.mu.Lock()
				s.syncing.pending = max(s.syncing.pending-1, 0) // reset meanwhile
				s.syncing.mu.Unlock()
			} else {
				left++
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if left > 0 {
		return fmt.Errorf("fill %d of %d partitions of ring %d: %w", left, len(todo), next.Epoch(),
			errors.Join(append(errs, errors.New("too few of their owners answered"))...))
	}
	s.syncing.mu.Lock()
	defer s.syncing.mu.Unlock()
	if now := s.view.Load(); now == nil || now.Base != v.Base {
		return fmt.Errorf("fill from ring %d: %w", v.Base.Epoch(), rings.ErrLeft)
	}
	s.syncing.completed = max(s.syncing.completed, next.Epoch())
	return nil
}

// enoughHeard reports whether the nodes heard hold every acknowledged record of a partition: they
// include a read quorum of its base owners, or all base owners that the cluster still has.
func (s *Store) enoughHeard(v *rings.View, p int, heard map[string]bool) bool {
	members := s.peers.Members()
	owners := v.Base.Owners(p)
	n, remain := 0, 0
	for _, o := range owners {
		if heard[o] {
			n++
		}
		if o == s.self || v.Latest().Has(o) || slices.Contains(members, o) {
			remain++
		}
	}
	return n >= min(v.Base.ReadQuorum(), remain)
}
