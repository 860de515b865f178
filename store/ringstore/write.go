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
	"clustermaster/test/knownbug"
)

// Put is one record to write in a place.
type Put struct {
	Space   Space
	Name    string
	Value   []byte
	Expires time.Time // zero: never; counted in whole seconds, rounded up
	First   bool      // the first write wins, later ones change nothing
	// Exact vouches that every write of this key carries this very expiry, so that the store need
	// not search other time buckets for an earlier write. Records written so can't be deleted, only
	// expire.
	Exact bool

	deleted bool
}

// Result is what became of one Put.
type Result struct {
	// Stored is true when this value is the one that is kept; false only for First, when an earlier
	// one stays.
	Stored  bool
	Version Version // of the record that is kept
}

// writeTries is how often a write is made later than those that it lost against.
const writeTries = 5

// Write stores records of one place, all on the same owners, in one message to each and one commit
// there. It returns when a write quorum of the owners has each on stable storage; with fewer
// masters alive than that, when all that are alive have (then the copies are owed, see Info). After
// an error other than of the arguments the records may have been stored or not; writing them again
// is safe.
//
// Two masters that take a First write of the same key at the same moment may both be told that
// theirs is stored; the copies agree on the one with the lower version.
func (s *Store) Write(ctx context.Context, place string, puts ...Put) ([]Result, error) {
	results, err := s.write(ctx, place, puts)
	if err != nil {
		s.met.writes.WithLabelValues("error").Inc()
		return nil, err
	}
	s.met.writes.WithLabelValues("ok").Inc()
	return results, nil
}

func (s *Store) write(ctx context.Context, place string, puts []Put) ([]Result, error) {
	if len(puts) == 0 {
		return nil, nil
	}
	for i := range puts {
		k := Key{Space: puts[i].Space, Place: place, Name: puts[i].Name}
		if err := k.Check(); err != nil {
			return nil, fmt.Errorf("write %q: %w", place, err)
		}
		if len(puts[i].Value) > s.opts.MaxRecord {
			return nil, fmt.Errorf("write %q: value of %d bytes, at most %d: %w", place,
				len(puts[i].Value), s.opts.MaxRecord, ErrTooLarge)
		}
	}
	results := make([]Result, len(puts))
	todo := make([]int, len(puts))
	for i := range todo {
		todo[i] = i
	}
	var records []Record
	floor := uint64(0) // of the versions, where another master's clock is ahead
	for range writeTries {
		v, err := s.current(ctx)
		if err != nil {
			return nil, fmt.Errorf("write %q: %w", place, err)
		}
		partition := v.Latest().Partition(place)
		if records == nil {
			records = s.stamp(place, partition, puts, todo, floor)
		}
		beaten, stale, err := s.replicate(ctx, v, partition, records)
		if stale != 0 {
			if err := s.awaitEpoch(ctx, stale); err != nil {
				return nil, fmt.Errorf("write %q: %w", place, err)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("write %q: %w", place, err)
		}
		var again []int
		for i, at := range todo {
			b := beaten[i]
			switch {
			case b == nil:
				results[at] = Result{Stored: true, Version: records[i].Version}
			case puts[at].First:
				results[at] = Result{Version: b.Version}
			default:
				// Another master's clock is ahead. The next try comes later than that write,
				// however far that is; this master's clock follows only so far as it may.
				s.clock.Observe(b.Version.Clock)
				floor = max(floor, b.Version.Clock+1)
				again = append(again, at)
			}
		}
		if len(again) == 0 {
			return results, nil
		}
		todo, records = again, nil
	}
	return nil, fmt.Errorf("write %q: %w", place, ErrContended)
}

func (s *Store) stamp(place string, partition int, puts []Put, which []int, floor uint64) []Record {
	out := make([]Record, len(which))
	for i, at := range which {
		p := &puts[at]
		r := Record{Key: Key{Space: p.Space, Place: place, Name: p.Name}, Value: p.Value,
			Version: Version{Clock: max(s.clock.Next(), floor), Node: s.node}, Partition: partition}
		if !p.Expires.IsZero() {
			r.Expires = p.Expires.Add(time.Second - 1).Truncate(time.Second).UTC()
		}
		if p.First {
			r.Flags |= disk.FlagFirst
		}
		if p.Exact && !p.deleted {
			r.Flags |= disk.FlagExact
		}
		if p.deleted {
			r.Flags |= disk.FlagDeleted
			r.Expires = s.opts.Now().Add(s.opts.TombstoneFor).Truncate(time.Second).UTC()
		}
		out[i] = r
	}
	return out
}

// awaitEpoch waits until this master has heard of the ring that another one refused a write for.
func (s *Store) awaitEpoch(ctx context.Context, epoch uint64) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadyTimeout)
	defer cancel()
	for {
		if r := s.peers.Ring(); r != nil && r.Epoch() >= epoch {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for ring %d, which another master has: %w", epoch, ctx.Err())
		case <-s.closed:
			return ErrClosed
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// replication is one write on its way to its owners.
type replication struct {
	s         *Store
	v         *rings.View
	partition int
	records   []Record
	size      int

	mu  sync.Mutex // guards all below; no call to a lane or the committer is made under it
	out []target   // sends not answered yet
	// sends that went wrong though the owner is alive: made again at the next look
	again   []target
	copies  []string     // nodes that have the records on stable storage
	covered []string     // owners for which a stand-in has them
	tried   []string     // stand-ins used or given up
	beaten  []*disk.Kept // by record: the winner that some owner kept instead
	stale   uint64
	err     error // of the last send that went wrong
	ended   bool
	done    chan struct{} // closed when ended
}

// target is one send under way: to an owner, or to a stand-in for one.
type target struct {
	node, owner string
}

// replicate writes records to the owners and waits for the quorum. beaten has, for each record, the
// winner if another one is kept. A stale epoch is not an error: the caller takes over the newer
// ring and comes again.
func (s *Store) replicate(ctx context.Context, v *rings.View, partition int,
	records []Record) (beaten []*disk.Kept, stale uint64, err error) {
	owners := v.Owners(partition)
	if len(owners) == 0 {
		return nil, 0, ErrUnavailable
	}
	if len(owners) == 1 && owners[0] == s.self {
		return s.writeAlone(ctx, v, records)
	}
	w := &replication{s: s, v: v, partition: partition, records: records,
		beaten: make([]*disk.Kept, len(records)), done: make(chan struct{})}
	for i := range records {
		w.size += len(records[i].Value) + len(records[i].Name) + len(records[i].Place) + 64
	}
	w.start(owners)
	timer := time.NewTimer(s.opts.LookAgain)
	defer timer.Stop()
	limit := time.Now().Add(2 * s.remote.TimeoutOf(w.size))
	for {
		select {
		case <-w.done:
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.beaten, w.stale, w.err
		case <-ctx.Done():
			w.abandon()
			return nil, 0, ctx.Err()
		case <-s.closed:
			return nil, 0, ErrClosed
		case <-timer.C:
			w.giveUpDead()
			if time.Now().After(limit) {
				w.abandon()
			} else {
				w.sendAgain()
			}
			timer.Reset(s.opts.LookAgain)
		}
	}
}

// writeAlone is replicate for a ring of one: a group commit and nothing else.
func (s *Store) writeAlone(ctx context.Context, v *rings.View, records []Record) ([]*disk.Kept,
	uint64,
	error) {
	t := &disk.Write{Epoch: v.Latest().Epoch(), Changes: make([]disk.Change, len(records))}
	for i := range records {
		t.Changes[i].Record = records[i]
	}
	if err := s.disk.Commit(ctx, t); err != nil {
		return nil, 0, err
	}
	beaten := make([]*disk.Kept, len(records))
	for i := range t.Kept {
		beaten[t.Kept[i].Index] = &t.Kept[i]
	}
	return beaten, t.Stale, nil
}

func (s *Store) alive(node string) bool { return node == s.self || s.peers.Alive(node) }

// start sends to the owners that are alive and finds stand-ins for the others.
func (w *replication) start(owners []string) {
	var to []target
	var away []string
	for _, o := range owners {
		if w.s.alive(o) {
			to = append(to, target{o, o})
		} else {
			away = append(away, o)
		}
	}
	var debts []string
	for _, o := range away {
		if n := w.standIn(owners); n != "" {
			to = append(to, target{n, o})
		} else {
			debts = append(debts, o)
		}
	}
	w.mu.Lock()
	w.out = append(w.out, to...)
	w.mu.Unlock()
	under := !w.enough(to)
	for _, t := range to {
		if t.node != w.s.self {
			w.send(t, nil, under)
		}
	}
	// This disk comes last: it may have to wait for room. The debts ride in the same commit.
	for _, t := range to {
		if t.node == w.s.self {
			w.send(t, debts, under)
		}
	}
	if len(to) == 0 {
		w.finish(ErrUnavailable)
	}
}

// enough reports whether sends to all of these would make a quorum in every ring.
func (w *replication) enough(to []target) bool {
	for _, r := range w.v.Rings {
		n := 0
		for _, t := range to {
			if r.Owns(t.owner, w.partition) {
				n++
			}
		}
		if n < r.WriteQuorum() {
			return false
		}
	}
	return true
}

// standIn picks the next live member that is no owner; "" if there is none. All masters ask in the
// same order, so that reads know where to look.
func (w *replication) standIn(owners []string) string {
	for _, n := range w.s.standIns(w.v, w.partition, owners) {
		w.mu.Lock()
		used := slices.Contains(w.tried, n)
		if !used {
			w.tried = append(w.tried, n)
		}
		w.mu.Unlock()
		if !used {
			return n
		}
	}
	return ""
}

// standIns returns the live members that don't own the partition, best first.
func (s *Store) standIns(v *rings.View, partition int, owners []string) []string {
	var free []string
	for _, n := range v.Members() {
		if !slices.Contains(owners, n) && s.alive(n) {
			free = append(free, n)
		}
	}
	if len(free) == 0 {
		return nil
	}
	return hashring.Rank(partition, free)
}

// send starts one send; its end comes to answered.
func (w *replication) send(t target, owed []string, under bool) {
	standIn := t.node != t.owner
	if standIn {
		w.s.met.standIns.Inc()
		owed = []string{t.owner}
	}
	if t.node == w.s.self {
		changes := make([]disk.Change, len(w.records))
		for i := range w.records {
			changes[i] = disk.Change{Record: w.records[i], Owed: owed, StandIn: standIn,
				Under: under}
		}
		epoch := w.v.Latest().Epoch()
		k := &disk.Write{Epoch: epoch, Changes: changes,
			Done: func(k *disk.Write) { w.answered(t, k.Kept, k.Stale, k.Err) }}
		// The write waits here for room in the queue: that is the push-back on a busy disk.
		if err := w.s.disk.Submit(w.s.life, k); err != nil {
			w.answered(t, nil, 0, err)
		}
		return
	}
	group := &ringpb.Group{Epoch: w.v.Latest().Epoch(),
		Changes: make([]*ringpb.Change, len(w.records))}
	for i := range w.records {
		group.Changes[i] = &ringpb.Change{Record: remote.ToWire(&w.records[i]), Owed: owed,
			StandIn: standIn, Under: under}
	}
	x := &remote.Send{Group: group, Size: w.size,
		Done: func(reply *ringpb.GroupReply, err error) {
			if err != nil {
				w.answered(t, nil, 0, err)
				return
			}
			w.answered(t, keptOf(reply), reply.Stale, nil)
		}}
	if err := w.s.remote.Send(t.node, x); err != nil {
		w.answered(t, nil, 0, err)
	}
}

func keptOf(reply *ringpb.GroupReply) []disk.Kept {
	var out []disk.Kept
	for _, o := range reply.Outcomes {
		out = append(out, disk.Kept{Index: int(o.Index),
			Version: Version{Clock: o.Clock, Node: o.Node},
			Flags:   uint8(o.Flags)})
	}
	return out
}

// answered takes the end of one send. It runs on a lane, on the committer's syncer or on the
// caller.
func (w *replication) answered(t target, lost []disk.Kept, stale uint64, err error) {
	w.mu.Lock()
	at := slices.Index(w.out, t)
	if at < 0 {
		w.mu.Unlock()
		return // given up before
	}
	w.out = slices.Delete(w.out, at, at+1)
	switch {
	case stale != 0 && w.ended && w.stale == 0:
		// The others made the quorum before; nobody comes again for this copy.
		w.mu.Unlock()
		w.makeUp(t)
		return
	case stale != 0:
		w.stale = max(w.stale, stale)
		w.end(nil)
	case err != nil:
		w.mu.Unlock()
		w.replace(t, err)
		return
	default:
		w.copies = append(w.copies, t.node)
		w.covered = append(w.covered, t.owner)
		for i := range lost {
			k := &lost[i]
			if k.Index < 0 || k.Index >= len(w.beaten) {
				continue
			}
			if old := w.beaten[k.Index]; old == nil ||
				disk.Wins(k.Flags, k.Version, old.Flags, old.Version) {
				w.beaten[k.Index] = k
			}
		}
	}
	w.judge(err)
	w.mu.Unlock()
}

// replace finds another place for the copy of an owner that did not take it: a stand-in; else,
// where the write depends on it and the owner is alive, the owner again; else a debt here.
func (w *replication) replace(t target, err error) {
	w.s.log.Debug("copy not taken", "peer", t.node, "err", err)
	if errors.Is(err, ErrClosed) {
		w.finish(ErrClosed)
		return
	}
	if n := w.standIn(w.v.Owners(w.partition)); n != "" {
		next := target{n, t.owner}
		w.mu.Lock()
		w.out = append(w.out, next)
		w.mu.Unlock()
		w.send(next, nil, false)
		return
	}
	w.mu.Lock()
	if !w.ended && w.s.alive(t.owner) {
		w.again = append(w.again, target{t.owner, t.owner})
		w.err = err
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	w.owe(t)
	w.mu.Lock()
	w.judge(err)
	w.mu.Unlock()
}

// sendAgain repeats the sends that went wrong though their owner is alive.
func (w *replication) sendAgain() {
	w.mu.Lock()
	again := w.again
	w.again = nil
	w.out = append(w.out, again...)
	w.mu.Unlock()
	for _, t := range again {
		if w.s.alive(t.node) {
			w.send(t, nil, false)
			continue
		}
		w.answered(t, nil, 0, remote.ErrGone)
	}
}

// abandon ends the write without a quorum: owners are alive and did not take it in time. What they
// lack is owed.
func (w *replication) abandon() {
	w.mu.Lock()
	again := w.again
	w.again = nil
	w.end(errors.Join(ErrUnavailable, w.err))
	w.mu.Unlock()
	for _, t := range again {
		w.owe(t)
	}
}

// owe notes at this master that an owner lacks the records, without waiting: comparing copies would
// find it as well.
func (w *replication) owe(t target) {
	if t.owner == w.s.self {
		return
	}
	mine := slices.Contains(w.v.Owners(w.partition), w.s.self)
	w.mu.Lock()
	hoped := slices.Clone(w.out)
	for _, o := range w.covered {
		hoped = append(hoped, target{owner: o})
	}
	w.mu.Unlock()
	under := !w.enough(hoped)
	changes := make([]disk.Change, len(w.records))
	for i := range w.records {
		changes[i] = disk.Change{Record: w.records[i], Owed: []string{t.owner}, StandIn: !mine,
			Under: under}
	}
	if !w.s.disk.Try(&disk.Write{Changes: changes, Done: func(*disk.Write) {}}) {
		w.s.met.debtsLost.Inc()
	}
}

// makeUp sees to the copy of an owner that refused the write for its old ring after the write had
// ended.
func (w *replication) makeUp(t target) {
	if t.owner != w.s.self {
		w.owe(t)
		return
	}
	changes := make([]disk.Change, len(w.records))
	for i := range w.records {
		changes[i].Record = w.records[i]
	}
	if !w.s.disk.Try(&disk.Write{Changes: changes, Done: func(*disk.Write) {}}) {
		w.s.met.debtsLost.Inc()
	}
}

// judge ends the write if it can be: a quorum in each ring, or nobody left to wait for. Called with
// mu held.
func (w *replication) judge(err error) {
	if w.ended {
		return
	}
	quorum := true
	for _, r := range w.v.Rings {
		n := 0
		for _, o := range w.covered {
			if r.Owns(o, w.partition) {
				n++
			}
		}
		quorum = quorum && (n >= r.WriteQuorum() || n > 0 && knownbug.Is(knownbug.WriteOne))
	}
	switch {
	case quorum:
		w.end(nil)
		w.payLater()
	case len(w.out)+len(w.again) > 0:
	case len(w.copies) > 0 && w.s.stale.Load():
		// What is here goes if deletions were forgotten while this master was away, and nobody who
		// could say so was heard yet.
		w.end(errors.Join(errAway, err))
	case len(w.copies) > 0:
		w.s.met.under.Inc()
		w.end(nil)
	default:
		w.end(errors.Join(ErrUnavailable, err))
	}
}

// payLater turns sends that would be made again into debts: the write does not depend on them.
// Called with mu held.
func (w *replication) payLater() {
	for _, t := range w.again {
		w.s.spawn(func() { w.owe(t) })
	}
	w.again = nil
}

// end tells the caller; called with mu held.
func (w *replication) end(err error) {
	if !w.ended {
		w.ended = true
		w.err = err
		close(w.done)
	}
}

func (w *replication) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(err)
}

// giveUpDead stops waiting for masters that are not reachable any more.
func (w *replication) giveUpDead() {
	w.mu.Lock()
	var gone []target
	w.out = slices.DeleteFunc(w.out, func(t target) bool {
		if w.s.alive(t.node) {
			return false
		}
		gone = append(gone, t)
		return true
	})
	w.mu.Unlock()
	for _, t := range gone {
		w.replace(t, remote.ErrGone)
	}
}

// Put stores one record; a later Put replaces it.
func (s *Store) Put(ctx context.Context, k Key, value []byte, expires time.Time) error {
	_, err := s.Write(ctx, k.Place, Put{Space: k.Space, Name: k.Name, Value: value,
		Expires: expires})
	return err
}

// PutFirst stores one record unless there is one already; first is false, and the earlier one kept,
// if there is.
func (s *Store) PutFirst(ctx context.Context, k Key, value []byte, expires time.Time) (first bool,
	err error) {
	res, err := s.Write(ctx, k.Place, Put{Space: k.Space, Name: k.Name, Value: value,
		Expires: expires, First: true})
	if err != nil {
		return false, err
	}
	return res[0].Stored, nil
}

// Delete removes records of a place. Their tombstones stay for Options.TombstoneFor.
func (s *Store) Delete(ctx context.Context, space Space, place string, names ...string) error {
	for chunk := range slices.Chunk(names, disk.MaxGroup) {
		puts := make([]Put, len(chunk))
		for i, n := range chunk {
			puts[i] = Put{Space: space, Name: n, deleted: true}
		}
		if _, err := s.Write(ctx, place, puts...); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}
