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

	"google.golang.org/grpc/status"
)

// Put is one record to write in a place.
type Put struct {
	Space   Space
	Name    string
	Value   []byte
	Expires time.Time // zero: never; counted in whole seconds, rounded up
	First   bool      // the first write wins, later ones change nothing
	// Exact promises that every write of this key has the same expiry, so that the store need not
	// search other time buckets for an earlier write. Such records can't be deleted; they only
	// expire.
	Exact bool

	deleted bool
}

// Result is the outcome of one Put.
type Result struct {
	// Stored is true if this value is kept; it is false only for First, if an earlier one stays.
	Stored  bool
	Version Version // of the kept record
}

// writeTries is how often a write that lost is tried again with a later version.
const writeTries = 5

// Write stores records of one place. All have the same owners, so it needs one message to each and
// one commit there. It returns when a write quorum of the owners has each record on stable storage;
// if fewer masters are alive, when all live ones have (the copies are then owed, see Info). It
// fails for a record that has expired by this master's time, or by that of so many owners that no
// quorum is left. After an error other than one of the arguments, the records may or may not have
// been stored; it is safe to write them again.
//
// Two masters that take a First write of the same key at the same moment may both report their own
// as stored; the copies then agree on the one with the lower version.
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
		if end := wholeSeconds(puts[i].Expires); !end.IsZero() && !s.opts.Now().Before(end) {
			return nil, fmt.Errorf("write %q until %v: %w", place, end, disk.ErrExpired)
		}
	}
	results := make([]Result, len(puts))
	todo := make([]int, len(puts))
	for i := range todo {
		todo[i] = i
	}
	var records []Record
	floor := uint64(0) // of the versions, if another master's clock is ahead
	for range writeTries {
		v, err := s.current(ctx)
		if err != nil {
			return nil, fmt.Errorf("write %q: %w", place, err)
		}
		partition := v.Latest().Partition(place)
		if records == nil {
			records = s.stamp(place, partition, puts, todo, floor)
		}
		beaten, stale, err := s.replicate(ctx, v, partition, records, true)
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
				// Another master's clock is ahead. The next try uses a version later than that
				// write, however far ahead; this master's clock follows only as far as maxDrift
				// allows.
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
			Version: Version{Clock: s.clock.NextAbove(floor), Node: s.node}, Partition: partition}
		r.Expires = wholeSeconds(p.Expires)
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

// wholeSeconds rounds an expiry up, to UTC.
func wholeSeconds(expires time.Time) time.Time {
	if expires.IsZero() {
		return expires
	}
	return expires.Add(time.Second - 1).Truncate(time.Second).UTC()
}

// awaitEpoch waits until this master has the ring for which another one refused a write.
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

// errDisowned refuses writes below the quorum.
var errDisowned = errors.New("too few masters take the record, and one refuses this master's node key: it may have " +
	"been removed; see salt-run cluster.members there")

// replication is one running write to its owners.
type replication struct {
	s         *Store
	v         *rings.View
	partition int
	records   []Record
	size      int
	fresh     bool // a client writes these records now

	mu  sync.Mutex // guards all below; not held while calling a lane or the committer
	out []target   // sends without an answer yet
	// sends that failed although the owner is alive: repeated at the next check
	again []target
	// owners that could not be reached, and for which there is no stand-in: they become targets
	// when they are back, or debts of a disk that takes the records
	absent  []string
	copies  []string     // nodes that have the records on stable storage
	covered []string     // owners whose stand-in has the records
	tried   []string     // stand-ins used or given up
	beaten  []*disk.Kept // by record: the winner that an owner kept instead
	stale   uint64
	err     error // of the last send that failed
	ended   bool
	done    chan struct{} // closed when ended
}

// target is one running send: to an owner, or to a stand-in for one.
type target struct {
	node, owner string
	late        bool // sent when a disk had the records
	doubts      bool // this owner refused such a send, because it doubts its own records
}

// replicate writes records to the owners and waits for the quorum. beaten has, for each record, the
// winner if another one is kept. A stale epoch is not an error: the caller takes over the newer
// ring and tries again.
func (s *Store) replicate(ctx context.Context, v *rings.View, partition int,
	records []Record, fresh bool) (beaten []*disk.Kept, stale uint64, err error) {
	owners := v.Owners(partition)
	if len(owners) == 0 {
		return nil, 0, ErrUnavailable
	}
	if len(owners) == 1 && owners[0] == s.self {
		return s.writeAlone(ctx, v, records, fresh)
	}
	w := &replication{s: s, v: v, partition: partition, records: records, fresh: fresh,
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
			return w.result()
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

// result is what the caller gets of a write that has ended. Later answers don't change it.
func (w *replication) result() (beaten []*disk.Kept, stale uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.beaten), w.stale, w.err
}

// writeAlone is replicate for a ring of one master: only a group commit.
func (s *Store) writeAlone(ctx context.Context, v *rings.View, records []Record,
	fresh bool) ([]*disk.Kept, uint64, error) {
	t := &disk.Write{Epoch: v.Latest().Epoch(), Fresh: fresh,
		Changes: make([]disk.Change, len(records))}
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

// start sends to the live owners and finds stand-ins for the others.
func (w *replication) start(owners []string) {
	var to []target
	var away []string
	for _, o := range owners {
		if w.s.alive(o) {
			to = append(to, target{node: o, owner: o})
		} else {
			away = append(away, o)
		}
	}
	var absent []string
	for _, o := range away {
		if n := w.standIn(owners); n != "" {
			to = append(to, target{node: n, owner: o})
		} else {
			absent = append(absent, o)
		}
	}
	w.mu.Lock()
	w.out, w.absent = append(w.out, to...), slices.Clone(absent)
	w.mu.Unlock()
	under := !w.enough(to)
	for _, t := range to {
		if t.node != w.s.self {
			w.send(t, nil, under)
		}
	}
	// This disk comes last: it may have to wait for room. The debts are in the same commit.
	for _, t := range to {
		if t.node == w.s.self {
			w.send(t, absent, under)
		}
	}
	if len(to) == 0 {
		w.finish(ErrUnavailable)
	}
}

// enough reports whether sends to all of these would be a quorum in every ring.
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

// standIn returns the next live member that is not an owner, or "" if there is none. All masters
// use the same order, so that reads know where to look.
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

// send starts one send; answered handles its result. A disk that takes the records notes the debts
// to absent owners with them.
func (w *replication) send(t target, absent []string, under bool) {
	standIn, owed := t.node != t.owner, absent
	if standIn {
		w.s.met.standIns.Inc()
		owed = append([]string{t.owner}, owed...) // this disk, if alone, has copies for all
	}
	if t.node == w.s.self {
		changes := make([]disk.Change, len(w.records))
		for i := range w.records {
			changes[i] = disk.Change{Record: w.records[i], Owed: owed, StandIn: standIn,
				Under: under}
		}
		epoch := w.v.Latest().Epoch()
		k := &disk.Write{Epoch: epoch, Changes: changes, Fresh: w.fresh,
			Done: func(k *disk.Write) { w.answered(t, absent, k.Kept, k.Stale, k.Err) }}
		// The write waits here for room in the queue, which slows writers down on a busy disk.
		if err := w.s.disk.Submit(w.s.life, k); err != nil {
			w.answered(t, nil, nil, 0, err)
		}
		return
	}
	group := &ringpb.Group{Epoch: w.v.Latest().Epoch(), Fresh: w.fresh,
		Changes: make([]*ringpb.Change, len(w.records))}
	for i := range w.records {
		group.Changes[i] = &ringpb.Change{Record: remote.ToWire(&w.records[i]), Owed: owed,
			StandIn: standIn, Under: under}
	}
	x := &remote.Send{Group: group, Size: w.size,
		Done: func(reply *ringpb.GroupReply, err error) {
			if err != nil {
				w.answered(t, nil, nil, 0, err)
				return
			}
			w.answered(t, absent, keptOf(reply), reply.Stale, nil)
		}}
	if err := w.s.remote.Send(t.node, x); err != nil {
		w.answered(t, nil, nil, 0, err)
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

// answered handles the result of one send, which noted the debts to some absent owners. It runs on
// a lane, on the committer's syncer or on the caller's goroutine.
func (w *replication) answered(t target, noted []string, lost []disk.Kept, stale uint64, err error) {
	w.mu.Lock()
	at := slices.Index(w.out, t)
	if at < 0 {
		w.mu.Unlock()
		return // it was given up before
	}
	w.out = slices.Delete(w.out, at, at+1)
	switch {
	case stale != 0 && w.ended && w.stale == 0:
		// The write had its quorum before, and nothing else retries this copy.
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
		w.absent = slices.DeleteFunc(w.absent, func(o string) bool { return slices.Contains(noted, o) })
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

// replace finds another place for the copy of an owner that did not take it: a stand-in, or, while
// the write goes on, the owner again as soon as it is alive, or else a debt here.
func (w *replication) replace(t target, err error) {
	w.s.log.Debug("copy not taken", "peer", t.node, "err", err)
	if errors.Is(err, ErrClosed) || errors.Is(err, disk.ErrExpired) { // here; others' errors are texts
		w.finish(err)
		return
	}
	if n := w.standIn(w.v.Owners(w.partition)); n != "" {
		next := target{node: n, owner: t.owner}
		w.mu.Lock()
		w.out = append(w.out, next)
		w.mu.Unlock()
		w.resend(next)
		return
	}
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		w.owe(t)
		return
	}
	defer w.mu.Unlock()
	if w.s.alive(t.owner) {
		again := target{node: t.owner, owner: t.owner}
		again.doubts = t.late && status.Code(err) == remote.CodeDoubted
		w.again = append(w.again, again)
		w.err = err
		w.judge(err)
		return
	}
	w.absent = append(w.absent, t.owner)
	w.judge(err)
}

// resend sends in place of a send that failed. Its disk notes the debts that no other one has
// noted.
func (w *replication) resend(t target) {
	w.mu.Lock()
	absent := slices.Clone(w.absent)
	w.mu.Unlock()
	w.send(t, absent, len(absent) > 0 && w.below())
}

// sendAgain repeats the sends that failed although their owner is alive, and sends to absent owners
// that are back.
func (w *replication) sendAgain() {
	w.mu.Lock()
	w.welcome()
	again := w.again
	w.again = nil
	for i := range again {
		again[i].late, again[i].doubts = len(w.copies) > 0, false
	}
	w.out = append(w.out, again...)
	w.mu.Unlock()
	for _, t := range again {
		if w.s.alive(t.node) {
			w.resend(t)
			continue
		}
		w.answered(t, nil, nil, 0, remote.ErrGone)
	}
}

// welcome makes targets of absent owners that are back, and reports whether there are any. The
// caller holds mu.
func (w *replication) welcome() (back bool) {
	w.absent = slices.DeleteFunc(w.absent, func(o string) bool {
		if !w.s.alive(o) {
			return false
		}
		back = true
		w.again = append(w.again, target{node: o, owner: o})
		return true
	})
	return back
}

// abandon ends the write without a quorum, because live owners did not take it in time. The missing
// copies are owed.
func (w *replication) abandon() {
	w.mu.Lock()
	w.end(errors.Join(ErrUnavailable, w.err))
	unpaid := w.unpaid()
	w.mu.Unlock()
	for _, t := range unpaid {
		w.owe(t)
	}
}

// unpaid takes the targets of all copies that nobody has, nor owes. The caller holds mu.
func (w *replication) unpaid() []target {
	all := w.again
	for _, o := range w.absent {
		all = append(all, target{node: o, owner: o})
	}
	w.again, w.absent = nil, nil
	return all
}

// below reports whether the copies on disks, and those that are under way, are no quorum.
func (w *replication) below() bool {
	w.mu.Lock()
	hoped := slices.Clone(w.out)
	for _, o := range w.covered {
		hoped = append(hoped, target{owner: o})
	}
	w.mu.Unlock()
	return !w.enough(hoped)
}

// owe notes, without waiting, that this master owes an owner the records. Comparing copies would
// find it too.
func (w *replication) owe(t target) {
	if t.owner == w.s.self {
		return
	}
	mine := slices.Contains(w.v.Owners(w.partition), w.s.self)
	under := w.below()
	changes := make([]disk.Change, len(w.records))
	for i := range w.records {
		changes[i] = disk.Change{Record: w.records[i], Owed: []string{t.owner}, StandIn: !mine,
			Under: under}
	}
	if !w.s.disk.Try(&disk.Write{Changes: changes, Done: func(*disk.Write) {}}) {
		w.s.met.debtsLost.Inc()
	}
}

// makeUp delivers the copy of an owner that refused the write for its old ring after the write had
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

// judge ends the write if it has a quorum in each ring, or no more answers can come. The caller
// holds mu.
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
	// An owner that doubts its records compares them before it answers reads, and finds the copies
	// that were on disks before it refused; so it counts as absent.
	case len(w.out) > 0 || slices.ContainsFunc(w.again, func(t target) bool { return !t.doubts }) ||
		w.welcome():
	case len(w.copies) > 0:
		// These records are dropped if other masters removed tombstones while this master was away,
		// and no master that could tell has answered yet.
		if doubt := w.s.doubted(); doubt != nil {
			w.end(errors.Join(doubt, err))
			return
		}
		if w.s.peers.Disowned() { // nobody takes over the disk of a master that was removed
			w.end(errors.Join(errDisowned, err))
			return
		}
		w.s.met.under.Inc()
		w.end(nil)
		w.payLater()
	default:
		w.end(errors.Join(ErrUnavailable, err))
	}
}

// payLater makes debts of the copies that nobody has, because the write does not depend on them.
// The caller holds mu.
func (w *replication) payLater() {
	for _, t := range w.unpaid() {
		w.s.spawn(func() { w.owe(t) })
	}
}

// end returns the result to the caller; mu is held.
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

// giveUpDead stops waiting for masters that can't be reached any more.
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

// PutFirst stores one record unless there is one already; then first is false and the earlier one
// stays.
func (s *Store) PutFirst(ctx context.Context, k Key, value []byte, expires time.Time) (first bool,
	err error) {
	res, err := s.Write(ctx, k.Place, Put{Space: k.Space, Name: k.Name, Value: value,
		Expires: expires, First: true})
	if err != nil {
		return false, err
	}
	return res[0].Stored, nil
}

// DeleteStored is Delete of a record that may be unknown, at anyone's wish. It writes no tombstone
// if a quorum has no such record and no other copy can appear: all masters are in contact, and none
// is owed a copy. If that is unknown, it needs room on the disks as any record does.
func (s *Store) DeleteStored(ctx context.Context, k Key) error {
	if _, found, err := s.Get(ctx, k); err == nil && !found {
		if gone, calm := s.mayForget(); calm && len(gone) == 0 {
			return nil
		}
		if err := s.roomOnAll(); err != nil {
			return fmt.Errorf("delete %q: %w", k.Place, err)
		}
	}
	return s.Delete(ctx, k.Space, k.Place, k.Name)
}

// roomOnAll returns why this disk, or that of another live master, takes no more records, or nil.
func (s *Store) roomOnAll() error {
	if err := s.opts.Room(); err != nil {
		return err
	}
	for _, node := range s.others() {
		if status, alive, _ := s.heard.statusOf(node); alive && status.GetRefuses() != "" {
			return fmt.Errorf("%s: %s", node, status.Refuses)
		}
	}
	return nil
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
