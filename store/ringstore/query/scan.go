package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"
)

// Coverage says how much of the ring an answer about many records covers.
type Coverage struct {
	Partitions int // of the ring
	// of them, those for which too few owners answered to be sure of every record
	Incomplete int
}

// Complete reports whether no record can be missing.
func (c Coverage) Complete() bool { return c.Incomplete == 0 }

// String is empty for a complete answer, else "incomplete: n of N partitions"; n partitions may
// lack records.
func (c Coverage) String() string {
	if c.Complete() {
		return ""
	}
	return fmt.Sprintf("incomplete: %d of %d partitions", c.Incomplete, c.Partitions)
}

// disputedAtOnce is how many partitions with different copies are merged in memory at the same
// time.
const disputedAtOnce = 16

// survey holds what the live members reported about their records.
type survey struct {
	mu    sync.Mutex // guards all below while asking
	sums  map[int]map[string]disk.Sum
	heard map[string]bool
	left  error            // of a member that has given up the ring of the scan
	held  map[int][]string // partition to nodes that hold copies for others
}

// Scan calls fn with every record of a space whose name begins with prefix, each once, in no
// particular order, not concurrently. It asks all live members for digests. Where they agree it
// reads one copy (this master's own, if it has one), where they differ it merges the copies. It
// stops at an error from fn and returns it.
//
// If the ring of the scan was given up meanwhile, all partitions count as incomplete.
func (s *Queries) Scan(ctx context.Context, space disk.Space, prefix string,
	fn func(disk.Record) error) (Coverage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	var v *rings.View
	var found *survey
	err := s.Members.Retry(ctx, func() (err error) {
		if v, err = s.Members.Current(ctx); err == nil {
			found, err = s.surveyAll(ctx, v, space)
		}
		return err
	})
	if err != nil {
		return Coverage{}, fmt.Errorf("scan: %w", err)
	}
	cover, err := s.scanBy(ctx, v, found, space, prefix, fn)
	if now := s.Members.View(); now == nil || now.Ring(v.Base.Epoch()) == nil {
		cover.Incomplete = cover.Partitions
	}
	return cover, err
}

// scanBy reads the records by the result of the survey.
func (s *Queries) scanBy(ctx context.Context, v *rings.View, found *survey, space disk.Space,
	prefix string,
	fn func(disk.Record) error) (Coverage, error) {
	cover := Coverage{Partitions: v.Latest().Partitions()}
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
		for _, p := range lost { // the node went away while answering: read the other copies
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

// surveyAll asks all live members, this one included, for their digests of a space.
func (s *Queries) surveyAll(ctx context.Context, v *rings.View, space disk.Space) (*survey, error) {
	found := &survey{sums: map[int]map[string]disk.Sum{}, heard: map[string]bool{},
		held: map[int][]string{}}
	select {
	case <-s.Disk.Counted():
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.Closed:
		return nil, disk.ErrClosed
	}
	if s.Withheld() == nil {
		found.add(s.Members.Self(), s.Disk.Digest(space, nil, false))
	}
	for _, p := range s.Disk.HeldPartitions() {
		found.held[p] = append(found.held[p], s.Members.Self())
	}
	var wg sync.WaitGroup
	for _, node := range v.Members() {
		if node == s.Members.Self() || !s.Members.Alive(node) {
			continue
		}
		wg.Add(1)
		ok := s.Spawn(func() {
			defer wg.Done()
			reply, err := s.Peers.Digest(ctx, node,
				&ringpb.DigestRequest{Space: uint32(space), Base: v.Base.Epoch()})
			if err != nil {
				if rings.IsLeft(err) {
					found.mu.Lock()
					found.left = err
					found.mu.Unlock()
				}
				s.Log.Debug("no digest from a master", "node", node, "err", err)
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

func fromCells(list []*ringpb.Cell) []disk.Sum {
	out := make([]disk.Sum, len(list))
	for i, c := range list {
		out[i] = disk.Sum{CellID: disk.CellID{Bucket: c.Bucket, Space: disk.Space(c.Space),
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
func (f *survey) owners(v *rings.View, p int) []string {
	return slices.DeleteFunc(slices.Clone(v.Base.Owners(p)),
		func(n string) bool { return !f.heard[n] })
}

// readers returns the nodes to read for a partition: one of each group of owners that agree, and
// the members that hold copies for others. sure is false if too few owners answered. Without
// readers no node has records of it.
func (f *survey) readers(s *Queries, v *rings.View, p int) (nodes []string, sure bool) {
	owners := f.owners(v, p)
	sure = len(owners) >= v.Base.ReadQuorum()
	if !sure {
		// Owners in a pending ring may have the records of the missing ones.
		for _, n := range v.Owners(p) {
			if f.heard[n] && !slices.Contains(owners, n) {
				owners = append(owners, n)
			}
		}
	}
	if at := slices.Index(owners, s.Members.Self()); at > 0 {
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

// scanner is one running scan.
type scanner struct {
	s      *Queries
	v      *rings.View
	space  disk.Space
	prefix string
	fn     func(disk.Record) error
	found  *survey
}

// agreed reads partitions from one node whose copies equal all others. It returns the partitions
// that it could not read.
func (c *scanner) agreed(ctx context.Context, node string, partitions []int) (lost []int,
	err error) {
	begun := map[int]bool{}
	var fromFn error
	err = c.read(ctx, node, partitions, false, func(records []disk.Record) error {
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
		// fn already got some records, which must not come twice.
		return nil, fmt.Errorf("scan: %w", err)
	}
	return partitions, nil
}

// disputed merges the copies of some partitions; unsure is the number of partitions of which a copy
// that it should have read is missing.
func (c *scanner) disputed(ctx context.Context, partitions []int,
	readers map[int][]string) (unsure int, err error) {
	byNode := map[string][]int{}
	for _, p := range partitions {
		for _, n := range readers[p] {
			byNode[n] = append(byNode[n], p)
		}
	}
	set := disk.Winners{}
	collect := set.Collect(c.s.MaxList, false)
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
			c.s.Log.Debug("copy not scanned", "node", node, "err", err)
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
	fn func([]disk.Record) error) error {
	if node == c.s.Members.Self() {
		if held {
			return c.s.Disk.Held(func(k disk.Key, p int) bool {
				return k.Space == c.space && slices.Contains(partitions, p) &&
					strings.HasPrefix(k.Name, c.prefix)
			}, fn)
		}
		return c.s.Disk.Scan(c.space, partitions, disk.Begins(c.prefix), false, fn)
	}
	req := &ringpb.ScanRequest{Clock: c.s.Clock.Read(), Epoch: c.v.Latest().Epoch(),
		Space: uint32(c.space), Prefix: []byte(c.prefix), Held: held, Base: c.v.Base.Epoch()}
	for _, p := range partitions {
		req.Partitions = append(req.Partitions, uint32(p))
	}
	return c.s.Peers.Scan(ctx, node, req, fn)
}
