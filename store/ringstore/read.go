package ringstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/remote"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"
)

// placeSum is a digest over records of a place, independent of their order.
type placeSum struct{ sum, count uint64 }

func (p *placeSum) add(records []Record) error {
	for i := range records {
		p.sum ^= disk.SumOf(records[i].Place, records[i].Name, records[i].Version)
		p.count++
	}
	return nil
}

// localGet returns this disk's copies of k: the record, and a copy held for an absent owner.
func (s *Store) localGet(k Key, partition int) ([]Record, error) {
	if err := s.doubted(); err != nil {
		return nil, err
	}
	return s.disk.Copies(k, partition)
}

// localList calls fn with pages of this disk's records of a place whose names begin with k.Name,
// including tombstones and copies held for others, in no particular order.
func (s *Store) localList(k Key, partition int, keysOnly bool, fn func([]Record) error) error {
	if err := s.doubted(); err != nil {
		return err
	}
	return s.disk.List(k, partition, keysOnly, fn)
}

// answer is one master's answer to a read.
type answer struct {
	node    string
	owner   bool
	records disk.Winners
	same    bool // it has exactly the same as this master
	behind  bool
}

// gather asks owners of a partition, and stand-ins for absent owners, until a read quorum of
// up-to-date owners has answered; if fewer are alive, it asks all live ones. ask fills an answer
// from one node. A live owner that does not answer may have records that the others lack: gather
// asks it again for ReadTimeout, then the read fails.
func (s *Store) gather(ctx context.Context, v *rings.View, partition int,
	ask func(ctx context.Context, node string) (answer, error)) ([]answer, error) {
	if len(v.Base.Owners(partition)) == 0 {
		return nil, ErrUnavailable
	}
	until := time.Now().Add(s.opts.ReadTimeout)
	for {
		answers, silent, err := s.gatherOnce(ctx, v, partition, ask)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case s.doubted() != nil && slices.ContainsFunc(answers,
			func(a answer) bool { return a.node == s.self }):
			continue // another answer showed it; now without the own one
		case !slices.ContainsFunc(silent, s.alive):
			if len(answers) == 0 {
				return nil, errors.Join(ErrUnavailable, err)
			}
			return answers, nil
		case rings.IsLeft(err):
			return nil, err
		case errors.Is(err, ErrTooLarge), time.Now().After(until):
			return nil, errors.Join(ErrUnavailable, err)
		}
		select {
		case <-time.After(s.opts.LookAgain):
		case <-s.closed:
			return nil, ErrClosed
		case <-ctx.Done():
		}
	}
}

// gatherOnce is one attempt of gather. If it got no read quorum, silent lists the owners without an
// answer, and err is the error of one of them.
func (s *Store) gatherOnce(ctx context.Context, v *rings.View, partition int,
	ask func(ctx context.Context, node string) (answer,
		error)) (answers []answer, silent []string, err error) {
	owners := v.Base.Owners(partition)
	order := slices.Clone(owners)
	if at := slices.Index(order, s.self); at > 0 {
		order = slices.Insert(slices.Delete(order, at, at+1), 0, s.self)
	}
	var live []string
	for _, o := range order {
		if s.alive(o) {
			live = append(live, o)
		}
	}
	need := v.Base.ReadQuorum()
	good := 0
	for len(live) > 0 && good < need {
		n := min(need-good, len(live))
		batch := live[:n]
		live = live[n:]
		for _, a := range s.askAll(ctx, batch, ask, &err) {
			a.owner = true
			answers = append(answers, a)
			if !a.behind {
				good++
			}
		}
	}
	if good < need {
		for _, o := range order {
			if !slices.ContainsFunc(answers, func(a answer) bool { return a.node == o }) {
				silent = append(silent, o)
			}
		}
		// Some owners are away: stand-ins, or new owners in a pending ring, may have their records.
		rest := s.standIns(v, partition, owners)
		answers = append(answers, s.askAll(ctx, rest[:min(len(rest), maxStandIns)], ask, &err)...)
	} else if len(order) > need && s.someAway(order) {
		rest := s.standIns(v, partition, owners)
		answers = append(answers, s.askAll(ctx, rest[:min(len(rest), len(order)-need)], ask,
			&err)...)
	}
	return answers, silent, err
}

// maxStandIns bounds how many members that don't own a place are asked about it.
const maxStandIns = 8

func (s *Store) someAway(nodes []string) bool {
	return slices.ContainsFunc(nodes, func(n string) bool { return !s.alive(n) })
}

// askAll asks nodes at the same time and returns the answers that it got.
func (s *Store) askAll(ctx context.Context, nodes []string,
	ask func(context.Context, string) (answer, error), firstErr *error) []answer {
	if len(nodes) == 0 {
		return nil
	}
	type result struct {
		answer answer
		err    error
	}
	results := make([]result, len(nodes))
	// This goroutine makes the answer of this master, or of the last node if this master isn't
	// among them, so most reads start no goroutine.
	here := slices.Index(nodes, s.self)
	if here < 0 {
		here = len(nodes) - 1
	}
	var others sync.WaitGroup
	for i, n := range nodes {
		if i == here {
			continue
		}
		others.Add(1)
		ok := s.spawn(func() {
			defer others.Done()
			results[i].answer, results[i].err = ask(ctx, n)
		})
		if !ok {
			results[i].err = ErrClosed
			others.Done()
		}
	}
	results[here].answer, results[here].err = ask(ctx, nodes[here])
	others.Wait()
	var out []answer
	for i := range results {
		if err := results[i].err; err != nil {
			if *firstErr == nil || rings.IsLeft(err) { // the caller takes over the ring
				*firstErr = err
			}
			continue
		}
		results[i].answer.node = nodes[i]
		out = append(out, results[i].answer)
	}
	return out
}

// Get returns the record under k; found is false if there is none, or if it was deleted or has
// expired. If fewer owners are alive than a read needs, the live ones answer.
func (s *Store) Get(ctx context.Context, k Key) (rec Record, found bool, err error) {
	err = s.notOvertaken(ctx, func() error {
		rec, found, err = s.getOnce(ctx, k)
		return err
	})
	return rec, found, err
}

func (s *Store) getOnce(ctx context.Context, k Key) (rec Record, found bool, err error) {
	if err := k.Check(); err != nil {
		return Record{}, false, fmt.Errorf("read %q: %w", k.Place, err)
	}
	v, err := s.current(ctx)
	if err != nil {
		return Record{}, false, fmt.Errorf("read %q: %w", k.Place, err)
	}
	partition := v.Latest().Partition(k.Place)
	answers, err := s.gather(ctx, v, partition,
		func(ctx context.Context, node string) (answer, error) {
			return s.fetchFrom(ctx, v, node, partition, []Key{k})
		})
	if err != nil {
		return Record{}, false, fmt.Errorf("read %q: %w", k.Place, err)
	}
	best := disk.Winners{}
	for _, a := range answers {
		for _, r := range a.records {
			best.Add(r)
		}
	}
	s.repair(v, partition, answers, best)
	r := best[k]
	if r == nil || r.Deleted() {
		return Record{}, false, nil
	}
	return *r, true, nil
}

// fetchFrom asks one node for records by their keys.
func (s *Store) fetchFrom(ctx context.Context, v *rings.View, node string, partition int,
	keys []Key) (answer, error) {
	a := answer{records: make(disk.Winners, len(keys))}
	if node == s.self {
		for _, k := range keys {
			records, err := s.localGet(k, partition)
			if err != nil {
				return a, err
			}
			for i := range records {
				a.records.Add(&records[i])
			}
		}
		a.behind = s.isBehind()
		return a, nil
	}
	req := &ringpb.FetchRequest{Epoch: v.Latest().Epoch(), Base: v.Base.Epoch()}
	for _, k := range keys {
		req.Keys = append(req.Keys, &ringpb.Key{Space: uint32(k.Space), Place: []byte(k.Place),
			Name: []byte(k.Name), Partition: uint32(partition)})
	}
	info, err := s.remote.Fetch(ctx, node, req, func(records []Record) error {
		for i := range records {
			a.records.Add(&records[i])
		}
		return nil
	})
	a.behind = info.Behind
	return a, err
}

// List returns the records of a place whose names begin with prefix, sorted by name. It merges the
// answers of a read quorum of the owners and repairs copies that differ. For more than MaxList
// bytes it returns ErrTooLarge.
func (s *Store) List(ctx context.Context, space Space, place, prefix string) ([]Record, error) {
	return s.list(ctx, Key{Space: space, Place: place, Name: prefix}, false)
}

// Names returns the names of the records without reading values, sorted, however large the records
// are.
func (s *Store) Names(ctx context.Context, space Space, place, prefix string) ([]string, error) {
	records, err := s.list(ctx, Key{Space: space, Place: place, Name: prefix}, true)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.Name
	}
	return names, nil
}

func (s *Store) list(ctx context.Context, k Key, keysOnly bool) (records []Record, err error) {
	err = s.notOvertaken(ctx, func() error {
		records, err = s.listOnce(ctx, k, keysOnly)
		return err
	})
	return records, err
}

func (s *Store) listOnce(ctx context.Context, k Key, keysOnly bool) ([]Record, error) {
	place := k.Place
	if err := k.Check(); err != nil {
		return nil, fmt.Errorf("list %q: %w", place, err)
	}
	v, err := s.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", place, err)
	}
	partition := v.Latest().Partition(place)
	// This master's own records come first: the others then only say whether theirs are the same.
	var have placeSum
	mine, mineErr := answer{records: disk.Winners{}}, error(nil)
	if v.Base.Owns(s.self, partition) {
		mineErr = s.localList(k, partition, keysOnly,
			mine.records.Collect(s.opts.MaxList, keysOnly))
		for _, r := range mine.records {
			have.add([]Record{*r})
		}
		mine.behind = s.isBehind()
	}
	answers, err := s.gather(ctx, v, partition,
		func(ctx context.Context, node string) (answer, error) {
			if node == s.self && v.Base.Owns(s.self, partition) {
				return mine, errors.Join(mineErr, s.doubted())
			}
			return s.listFrom(ctx, v, node, k, partition, keysOnly, have)
		})
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", place, err)
	}
	for i := range answers {
		if answers[i].same {
			answers[i].records = mine.records
		}
	}
	best := answers[0].records
	if len(answers) > 1 { // one answer needs no comparison
		best = make(disk.Winners, len(best))
		for i := range answers {
			for _, r := range answers[i].records {
				best.Add(r)
			}
		}
		if !keysOnly { // without its value no copy can be repaired
			s.repair(v, partition, answers, best)
		}
	}
	sorted := make([]*Record, 0, len(best))
	for _, r := range best {
		if !r.Deleted() {
			sorted = append(sorted, r)
		}
	}
	slices.SortFunc(sorted, func(a, b *Record) int { return strings.Compare(a.Name, b.Name) })
	out := make([]Record, len(sorted))
	for i, r := range sorted {
		out[i] = *r
	}
	return out, nil
}

func (s *Store) listFrom(ctx context.Context, v *rings.View, node string, k Key, partition int,
	keysOnly bool, have placeSum) (answer, error) {
	a := answer{records: disk.Winners{}}
	if node == s.self {
		return a, s.localList(k, partition, keysOnly, a.records.Collect(s.opts.MaxList, keysOnly))
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.StreamTimeout)
	defer cancel()
	req := &ringpb.ListRequest{
		Epoch: v.Latest().Epoch(), Space: uint32(k.Space), Place: []byte(k.Place),
		Prefix: []byte(k.Name), Partition: uint32(partition), Have: have.sum,
		HaveCount: have.count, KeysOnly: keysOnly, Base: v.Base.Epoch(),
	}
	info, err := s.remote.List(ctx, node, req, a.records.Collect(s.opts.MaxList, keysOnly))
	a.same, a.behind = info.Same, info.Behind
	return a, err
}

// repair gives the winner to owners that answered and lack it, in the background and bounded.
func (s *Store) repair(v *rings.View, partition int, answers []answer, best disk.Winners) {
	now := s.opts.Now()
	for _, a := range answers {
		if !a.owner {
			continue
		}
		var missing []disk.Change
		for k, r := range best {
			if have := a.records[k]; (have == nil || have.Version != r.Version) && !r.Expired(now) {
				missing = append(missing, disk.Change{Record: *r})
			}
		}
		if len(missing) == 0 {
			continue
		}
		select {
		case s.repairs <- struct{}{}:
		default:
			return // too many are running; a later read or comparison repairs it
		}
		ok := s.spawn(func() {
			defer func() { <-s.repairs }()
			for chunk := range slices.Chunk(missing, disk.MaxGroup) {
				if err := s.give(s.life, v, a.node, chunk); err != nil {
					s.log.Debug("copy not repaired", "node", a.node, "err", err)
					return
				}
			}
			s.met.repaired.WithLabelValues("read").Add(float64(len(missing)))
		})
		if !ok {
			<-s.repairs
			return
		}
	}
}

// give makes changes durable on one node, which refuses stale epochs.
func (s *Store) give(ctx context.Context, v *rings.View, node string, changes []disk.Change) error {
	if node == s.self {
		t := &disk.Write{Epoch: v.Latest().Epoch(), Changes: changes}
		if err := s.disk.Commit(ctx, t); err != nil {
			return err
		}
		if t.Stale != 0 {
			return errStale
		}
		return nil
	}
	for len(changes) > 0 {
		group := &ringpb.Group{Epoch: v.Latest().Epoch()}
		size := 0
		for len(changes) > 0 && (size == 0 || size < remote.MessageBytes/2) {
			c := &changes[0]
			size += len(c.Record.Value) + len(c.Record.Name) + len(c.Record.Place) + 64
			group.Changes = append(group.Changes,
				remote.ToChange(c))
			changes = changes[1:]
		}
		once, cancel := context.WithTimeout(ctx, s.remote.TimeoutOf(size))
		reply, err := s.remote.Write(once, node,
			&ringpb.WriteRequest{Groups: []*ringpb.Group{group}}, size)
		cancel()
		if err != nil {
			return err
		}
		for _, g := range reply.Groups {
			if g.Stale != 0 {
				return errStale
			}
			if g.Error != "" {
				return errors.New(g.Error)
			}
		}
	}
	return nil
}

var errStale = errors.New("the ring changed meanwhile")
