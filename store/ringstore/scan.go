package ringstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
)

// Coverage says what part of the ring an answer about many records stands on.
type Coverage struct {
	Partitions int // of the ring
	// of them, those for which fewer owners answered than it takes to be sure of every record
	Incomplete int
}

// Complete reports whether nothing can be missing.
func (c Coverage) Complete() bool { return c.Incomplete == 0 }

// String is empty for a complete answer, else "incomplete: n of N partitions", n being those that
// may lack records.
func (c Coverage) String() string {
	if c.Complete() {
		return ""
	}
	return fmt.Sprintf("incomplete: %d of %d partitions", c.Incomplete, c.Partitions)
}

// disputedAtOnce is how many partitions, of which masters have different copies, are merged in
// memory together.
const disputedAtOnce = 16

// survey is what the live members said they hold.
type survey struct {
	mu    sync.Mutex // guards all below while asking
	sums  map[int]map[string]disk.Sum
	heard map[string]bool
	left  error            // of a member that has left the ring by which it was asked
	held  map[int][]string // partition to nodes that hold copies for others
}

// Scan calls fn with every record of a space whose name begins with prefix, each once, in no
// particular order, not concurrently. All live members are asked for digests; where they agree one
// copy is read (this master's own, if it has one), where they differ the copies are merged. An
// error from fn ends the scan and is returned.
//
// When the ring by which the records were read was given up meanwhile, none of them is vouched for:
// all partitions count as incomplete.
func (s *Store) Scan(ctx context.Context, space Space, prefix string,
	fn func(Record) error) (Coverage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StreamTimeout)
	defer cancel()
	var v *view
	var found *survey
	err := s.notOvertaken(ctx, func() (err error) {
		if v, err = s.current(ctx); err == nil {
			found, err = s.surveyAll(ctx, v, space)
		}
		return err
	})
	if err != nil {
		return Coverage{}, fmt.Errorf("scan: %w", err)
	}
	cover, err := s.scanBy(ctx, v, found, space, prefix, fn)
	if now := s.view.Load(); now == nil || now.ring(v.base.Epoch()) == nil {
		cover.Incomplete = cover.Partitions
	}
	return cover, err
}

// scanBy reads what the survey found.
func (s *Store) scanBy(ctx context.Context, v *view, found *survey, space Space, prefix string,
	fn func(Record) error) (Coverage, error) {
	cover := Coverage{Partitions: v.latest().Partitions()}
	agreed := map[string][]int{}
	disputed := map[int][]string{}
	for p := range cover.Partitions {
		readers, sure := found.readers(s, v, p)
		if !sure {
			cover.Incomplete++
		}
		switch len(readers) {
		case 0:
		case 1:
			agreed[readers[0]] = append(agreed[readers[0]], p)
		default:
			disputed[p] = readers
		}
	}
	scan := scanner{s: s, v: v, space: space, prefix: prefix, fn: fn, found: found}
	for node, partitions := range agreed {
		lost, err := scan.agreed(ctx, node, partitions)
		if err != nil {
			return cover, err
		}
		for _, p := range lost { // the node went away while answering: the other copies do
			if readers := slices.DeleteFunc(found.owners(v, p),
				func(n string) bool { return n == node }); len(readers) > 0 {
				disputed[p] = readers
			} else {
				cover.Incomplete++
			}
		}
	}
	wanted := make([]int, 0, len(disputed))
	for p := range disputed {
		wanted = append(wanted, p)
	}
	slices.Sort(wanted)
	for part := range slices.Chunk(wanted, disputedAtOnce) {
		unsure, err := scan.disputed(ctx, part, disputed)
		cover.Incomplete = min(cover.Incomplete+unsure, cover.Partitions)
		if err != nil {
			return cover, err
		}
	}
	return cover, nil
}

// surveyAll asks this and all live members for their digests of a space.
func (s *Store) surveyAll(ctx context.Context, v *view, space Space) (*survey, error) {
	found := &survey{sums: map[int]map[string]disk.Sum{}, heard: map[string]bool{},
		held: map[int][]string{}}
	select {
	case <-s.disk.Counted():
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closed:
		return nil, ErrClosed
	}
	if !s.disk.Refilling() && !s.stale.Load() {
		found.add(s.self, s.disk.Digest(space, nil, false))
	}
	for _, p := range s.disk.HeldPartitions() {
		found.held[p] = append(found.held[p], s.self)
	}
	var wg sync.WaitGroup
	for _, node := range v.members() {
		if node == s.self || !s.alive(node) {
			continue
		}
		wg.Add(1)
		ok := s.spawn(func() {
			defer wg.Done()
			reply, err := s.askDigest(ctx, node,
				&ringpb.DigestRequest{Space: uint32(space), Base: v.base.Epoch()})
			if err != nil {
				if isLeft(err) {
					found.mu.Lock()
					found.left = err
					found.mu.Unlock()
				}
				s.log.Debug("ask for a digest", "node", node, "err", err)
				return
			}
			found.add(node, fromCells(reply.Cells))
			found.mu.Lock()
			defer found.mu.Unlock()
			for _, p := range reply.Held {
				found.held[int(p)] = append(found.held[int(p)], node)
			}
		})
		if !ok {
			wg.Done()
		}
	}
	wg.Wait()
	return found, found.left
}

func (s *Store) askDigest(ctx context.Context, node string,
	req *ringpb.DigestRequest) (*ringpb.DigestReply, error) {
	client, err := s.client(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadTimeout)
	defer cancel()
	req.Clock = s.clock.Read()
	reply, err := client.Digest(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask %s for a digest: %w", node, err)
	}
	s.clock.Observe(reply.Clock)
	return reply, nil
}

func fromCells(list []*ringpb.Cell) []disk.Sum {
	out := make([]disk.Sum, len(list))
	for i, c := range list {
		out[i] = disk.Sum{CellID: disk.CellID{Bucket: c.Bucket, Space: Space(c.Space),
			Partition: uint16(c.Partition)}, Sum: c.Sum, Count: int64(c.Count)}
	}
	return out
}

func (f *survey) add(node string, sums []disk.Sum) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard[node] = true
	for _, x := range sums {
		p := int(x.Partition)
		if f.sums[p] == nil {
			f.sums[p] = map[string]disk.Sum{}
		}
		f.sums[p][node] = x
	}
}

// owners returns the base owners of a partition that answered.
func (f *survey) owners(v *view, p int) []string {
	return slices.DeleteFunc(slices.Clone(v.base.Owners(p)),
		func(n string) bool { return !f.heard[n] })
}

// readers returns who has to be read for a partition: one of each group of owners that agree, and
// the members that hold copies for others. Sure is false when too few owners answered. No readers:
// nobody has anything.
func (f *survey) readers(s *Store, v *view, p int) (nodes []string, sure bool) {
	owners := f.owners(v, p)
	sure = len(owners) >= v.base.ReadQuorum()
	if !sure {
		// Owners of a pending ring may have what the missing ones had.
		for _, n := range v.owners(p) {
			if f.heard[n] && !slices.Contains(owners, n) {
				owners = append(owners, n)
			}
		}
	}
	if at := slices.Index(owners, s.self); at > 0 {
		owners[0], owners[at] = owners[at], owners[0]
	}
	seen := map[uint64]bool{}
	for _, n := range owners {
		x := f.sums[p][n]
		if x.Count == 0 && x.Sum == 0 || seen[x.Sum] {
			continue
		}
		seen[x.Sum] = true
		nodes = append(nodes, n)
	}
	for _, n := range f.held[p] {
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes, sure
}

// scanner is one scan under way.
type scanner struct {
	s      *Store
	v      *view
	space  Space
	prefix string
	fn     func(Record) error
	found  *survey
}

// agreed reads partitions from one node that all copies agree with. It returns the partitions that
// it could not read.
func (c *scanner) agreed(ctx context.Context, node string, partitions []int) (lost []int,
	err error) {
	begun := map[int]bool{}
	var fromFn error
	err = c.read(ctx, node, partitions, false, func(records []Record) error {
		for i := range records {
			begun[records[i].Partition] = true
			if records[i].Deleted() {
				continue
			}
			if fromFn = c.fn(records[i]); fromFn != nil {
				return fromFn
			}
		}
		return nil
	})
	switch {
	case fromFn != nil:
		return nil, fromFn
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("scan: %w", ctx.Err())
	}
	if len(begun) > 0 {
		// Some records were given to fn already and must not come twice.
		return nil, fmt.Errorf("scan: %w", err)
	}
	return partitions, nil
}

// disputed merges the copies of some partitions; unsure is how many partitions lack a copy that
// should have been read.
func (c *scanner) disputed(ctx context.Context, partitions []int,
	readers map[int][]string) (unsure int, err error) {
	byNode := map[string][]int{}
	for _, p := range partitions {
		for _, n := range readers[p] {
			byNode[n] = append(byNode[n], p)
		}
	}
	set := map[Key]*Record{}
	collect := c.s.collect(set, false)
	bad := map[int]bool{}
	for node, list := range byNode {
		err := c.read(ctx, node, list, false, collect)
		if err == nil && slices.ContainsFunc(list,
			func(p int) bool { return slices.Contains(c.found.held[p], node) }) {
			err = c.read(ctx, node, list, true, collect)
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("scan: %w", ctx.Err())
		}
		if err != nil {
			c.s.log.Debug("scan a copy", "node", node, "err", err)
			for _, p := range list {
				bad[p] = true
			}
		}
	}
	for _, r := range set {
		if r.Deleted() {
			continue
		}
		if err := c.fn(*r); err != nil {
			return 0, err
		}
	}
	return len(bad), nil
}

// read streams records of some partitions from a node, or the copies that it holds for others.
func (c *scanner) read(ctx context.Context, node string, partitions []int, held bool,
	fn func([]Record) error) error {
	if node == c.s.self {
		if held {
			return c.s.disk.Held(func(k Key, p int) bool {
				return k.Space == c.space && slices.Contains(partitions, p) &&
					strings.HasPrefix(k.Name, c.prefix)
			}, fn)
		}
		return c.s.localScan(c.space, partitions, c.prefix, false, fn)
	}
	client, err := c.s.client(node)
	if err != nil {
		return err
	}
	req := &ringpb.ScanRequest{Clock: c.s.clock.Read(), Epoch: c.v.latest().Epoch(),
		Space: uint32(c.space), Prefix: []byte(c.prefix), Held: held, Base: c.v.base.Epoch()}
	for _, p := range partitions {
		req.Partitions = append(req.Partitions, uint32(p))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Scan(ctx, req)
	if err != nil {
		return fmt.Errorf("scan %s: %w", node, err)
	}
	_, err = c.s.receive(node, stream, cancel, fn)
	return err
}
