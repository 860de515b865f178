package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"

	"google.golang.org/grpc/codes"
)

// Compiler reads the questions about the records of one space. It is safe for concurrent use.
type Compiler interface {
	// Compile prepares a question, which may come from another master.
	Compile(question []byte) (Judge, error)
	// Parts finds the parts of a record's value that keys name, and sets parts[keys[key]]. It
	// leaves missing parts as they are.
	Parts(value []byte, keys map[string]int, parts []Part) error
}

// Judge is one compiled question. Only one goroutine may use it.
type Judge interface {
	// Looks returns what the question reads of the records of a place.
	Looks() []Look
	// Width is the number of bytes of hits.
	Width() int
	// Hit adds to hits the terms that hold for a record, judged by the part that one look reads.
	Hit(look int, p Part, hits []byte)
	// Err is not nil once the question has cost too much; discard the hits then.
	Err() error
}

// Look names a part of a record.
type Look struct {
	Name  string // of the record
	Key   string // of the part, see Compiler.Parts
	Whole bool   // the whole value
}

// Part is the part of one record that a look reads.
type Part struct {
	Text  string
	Found bool
}

// Bounds of one question.
const (
	MaxQuestion = 2 << 20 // bytes of the question
	MaxPlaces   = 1024    // that a question may name
)

var (
	// ErrNotReady refuses questions before this master has a ring.
	ErrNotReady = errors.New("this master does not know the ring yet; it asks the other masters")
	// ErrUnavailable says that no reachable master answers for a record.
	ErrUnavailable = errors.New("no owner of the record is reachable; see salt-run cluster.members")
	// ErrTooCostly refuses a question on which a judge worked too long.
	ErrTooCostly = errors.New("question that takes too much work")

	// ErrQuestion refuses a question that no master of ours sends.
	ErrQuestion = errors.New("question that no master asks")
	errOldPeer  = errors.New("that master does not know questions yet")
)

// CodeTooCostly is the gRPC code for ErrTooCostly.
const CodeTooCostly = codes.OutOfRange

// flushEvery is the longest time that a judging master sends nothing: the asker gives up on a
// silent one.
const flushEvery = time.Second

// verdict is the result of a question for one record.
type verdict struct {
	place   string
	name    int // index into the names that the question reads
	flags   uint8
	version disk.Version
	hits    []byte // valid until the next verdict
}

// asked is a question that this master judges.
type asked struct {
	space      disk.Space
	ring       *hashring.Ring // the ring that assigns places to partitions
	partitions []int
	places     []string
	versions   bool
	compiler   Compiler
	judge      Judge
	names      []string // of the records that the looks read
	looks      [][]int  // by name
}

func (s *Queries) compile(space disk.Space, question []byte) (*asked, error) {
	if len(question) > MaxQuestion {
		return nil, fmt.Errorf("question of %d bytes, at most %d: %w", len(question), MaxQuestion,
			disk.ErrTooLarge)
	}
	a := &asked{space: space, compiler: s.Parts.spaces[space]}
	if a.compiler == nil {
		return nil, fmt.Errorf("about space %d: %w", space, ErrQuestion)
	}
	var err error
	if a.judge, err = a.compiler.Compile(question); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	for i, l := range a.judge.Looks() {
		n := slices.Index(a.names, l.Name)
		if n < 0 {
			n = len(a.names)
			a.names = append(a.names, l.Name)
			a.looks = append(a.looks, nil)
		}
		a.looks[n] = append(a.looks[n], i)
	}
	return a, nil
}

// Answer judges the records on this disk and sends verdicts in chunks, to another master or this
// one. It takes the digests before it judges, so the verdicts are based on at least the records
// that the digests count.
func (s *Queries) Answer(ctx context.Context, req *ringpb.AskRequest,
	send func(*ringpb.Verdicts) error) error {
	if len(req.Partitions) > disk.MaxPartitions || len(req.Places) > MaxPlaces {
		return fmt.Errorf("question about %d partitions and %d places: %w", len(req.Partitions),
			len(req.Places), disk.ErrTooLarge)
	}
	a, err := s.compile(disk.Space(req.Space), req.Question)
	if err != nil {
		return err
	}
	select {
	case <-s.Disk.Counted():
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Closed:
		return disk.ErrClosed
	}
	if err := s.Withheld(); err != nil {
		return err
	}
	a.versions = req.Versions
	v := s.Members.View()
	if v == nil {
		return ErrNotReady
	}
	a.ring = v.Latest()
	for _, p := range req.Partitions {
		if int(p) < v.Latest().Partitions() {
			a.partitions = append(a.partitions, int(p))
		}
	}
	slices.Sort(a.partitions)
	a.partitions = slices.Compact(a.partitions)
	for _, place := range req.Places {
		if len(place) > disk.MaxPlace {
			return fmt.Errorf("place of %d bytes: %w", len(place), disk.ErrTooLarge)
		}
		a.places = append(a.places, string(place))
	}

	first := &ringpb.Verdicts{Clock: s.Clock.Read(), Judging: true}
	for _, p := range s.Disk.HeldPartitions() {
		first.Held = append(first.Held, uint32(p))
	}
	if !a.versions {
		for p, x := range s.Disk.Sums(a.space, v.Latest().Partitions()) {
			if x.Count != 0 || x.Sum != 0 {
				first.Cells = append(first.Cells,
					&ringpb.Cell{Space: req.Space, Partition: uint32(p), Sum: x.Sum,
						Count: uint64(x.Count)})
			}
		}
	}
	if err := send(first); err != nil {
		return err
	}
	out := &chunks{clock: s.Clock, versions: a.versions, send: send, chunk: &ringpb.Verdicts{},
		at: time.Now()}
	if err := s.judge(ctx, a, out.add); err != nil {
		return err
	}
	// A master drops records of partitions that it no longer owns only after it has given up the
	// ring by which it owned them.
	left := true
	if v := s.Members.View(); v != nil && v.Ring(req.Base) != nil {
		left = false
	}
	out.chunk.Done, out.chunk.Left = true, left
	return out.flush()
}

// chunks collects verdicts into messages.
type chunks struct {
	clock    *disk.Clock
	versions bool
	send     func(*ringpb.Verdicts) error
	chunk    *ringpb.Verdicts
	size     int
	at       time.Time // of the last flush
}

func (c *chunks) add(v verdict) error {
	if v.hits != nil {
		k := c.chunk
		k.Places = append(k.Places, []byte(v.place))
		k.Hits = append(k.Hits, v.hits...)
		if c.versions {
			k.Names = append(k.Names, uint32(v.name))
			k.Clocks = append(k.Clocks, v.version.Clock)
			k.Nodes = append(k.Nodes, v.version.Node)
			k.Flags = append(k.Flags, uint32(v.flags))
		}
		c.size += len(v.place) + len(v.hits) + 32
	}
	if c.size >= messageBytes || time.Since(c.at) > flushEvery {
		return c.flush()
	}
	return nil
}

func (c *chunks) flush() error {
	c.chunk.Clock = c.clock.Read()
	err := c.send(c.chunk)
	c.chunk, c.size, c.at = &ringpb.Verdicts{}, 0, time.Now()
	return err
}

// judge calls fn with verdicts on this disk's records: on those with hits, or with versions on all.
// A verdict without hits only shows that the work goes on.
func (s *Queries) judge(ctx context.Context, a *asked, fn func(verdict) error) error {
	hits := make([]byte, a.judge.Width())
	now := s.Now()
	for _, p := range a.partitions {
		if err := ctx.Err(); err != nil {
			return err
		}
		for n := range a.names {
			list, keys, err := s.rowsFor(a, n, p)
			if err != nil {
				return err
			}
			for i := range list {
				r := &list[i]
				if r.expired(now) || !a.versions && r.deleted() {
					continue
				}
				a.hit(n, r, keys, hits)
				if err := a.judge.Err(); err != nil {
					return fmt.Errorf("%w: %w", ErrTooCostly, err)
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if !a.versions && !anyBit(hits) {
					continue
				}
				if err := fn(verdict{r.place, n, r.flags, r.version, hits}); err != nil {
					return err
				}
			}
		}
		if a.versions && s.Disk.Holds(p) {
			if err := s.judgeHeld(a, p, hits, fn); err != nil {
				return err
			}
		}
		if err := fn(verdict{}); err != nil {
			return err
		}
	}
	return nil
}

// hit fills hits with the result of the looks at one name in a row; keys gives the index of each
// part.
func (a *asked) hit(name int, r *row, keys map[string]int, hits []byte) {
	clear(hits)
	if r.deleted() || r.bad {
		return
	}
	looks := a.judge.Looks()
	for _, l := range a.looks[name] {
		p := Part{Text: r.whole, Found: true}
		if !looks[l].Whole {
			p = r.parts[keys[looks[l].Key]]
		}
		a.judge.Hit(l, p, hits)
	}
}

func anyBit(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return true
		}
	}
	return false
}

// judgeHeld judges the copies in a partition that are held for others.
func (s *Queries) judgeHeld(a *asked, partition int, hits []byte, fn func(verdict) error) error {
	return s.Disk.HeldOf(a.space, partition, func(records []disk.Record) error {
		for i := range records {
			n := slices.Index(a.names, records[i].Name)
			if n < 0 || len(a.places) > 0 && !slices.Contains(a.places, records[i].Place) {
				continue
			}
			keys := a.keys(n)
			r := s.rowOf(a, n, &records[i], keys)
			a.hit(n, &r, keys, hits)
			if err := a.judge.Err(); err != nil {
				return fmt.Errorf("%w: %w", ErrTooCostly, err)
			}
			if err := fn(verdict{r.place, n, r.flags, r.version, hits}); err != nil {
				return err
			}
		}
		return nil
	})
}

// keys numbers the parts that the looks at one name read.
func (a *asked) keys(name int) map[string]int {
	keys := map[string]int{}
	for _, l := range a.looks[name] {
		if look := a.judge.Looks()[l]; !look.Whole {
			if _, ok := keys[look.Key]; !ok {
				keys[look.Key] = len(keys)
			}
		}
	}
	return keys
}

// whole reports whether a look at the name needs the whole value.
func (a *asked) whole(name int) bool {
	return slices.ContainsFunc(a.looks[name], func(l int) bool { return a.judge.Looks()[l].Whole })
}

// rowsFor returns the rows of one name in a partition, or of the places in the question, and the
// index of their parts.
func (s *Queries) rowsFor(a *asked, name, partition int) ([]row, map[string]int, error) {
	keys := a.keys(name)
	if len(a.places) > 0 {
		var list []row
		for _, place := range a.places {
			if a.ring.Partition(place) != partition {
				continue
			}
			r, found, err := s.Disk.Get(disk.Key{Space: a.space, Place: place, Name: a.names[name]},
				partition)
			if err != nil {
				return nil, nil, err
			}
			if found {
				list = append(list, s.rowOf(a, name, &r, keys))
			}
		}
		return list, keys, nil
	}
	id := tableID{a.space, a.names[name], partition}
	if a.whole(name) || !s.Parts.use(a.space, a.names[name], keys) {
		s.Parts.trim(a.space, a.names[name], keys)
		list, err := s.readRows(a, name, id, keys)
		return list, keys, err
	}
	r, err := s.keptRows(a, name, id, keys)
	if err != nil {
		return nil, nil, err
	}
	s.Parts.trim(a.space, a.names[name], keys)
	return r.list, r.keys, nil
}

// readRows reads the rows of a name in a partition from the disk, sorted by place.
func (s *Queries) readRows(a *asked, name int, id tableID, keys map[string]int) ([]row, error) {
	var list []row
	keep := func(k disk.Key) bool { return k.Name == id.name }
	err := s.Disk.Scan(id.space, []int{id.partition}, keep, false,
		func(records []disk.Record) error {
			for i := range records {
				list = append(list, s.rowOf(a, name, &records[i], keys))
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, byPlace)
	out := list[:0]
	for _, r := range list { // a record may have changed buckets while they were read
		if n := len(out); n > 0 && out[n-1].place == r.place {
			if disk.Wins(r.flags, r.version, out[n-1].flags, out[n-1].version) {
				out[n-1] = r
			}
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// rowOf extracts from a record the parts that the looks at its name read.
func (s *Queries) rowOf(a *asked, name int, r *disk.Record, keys map[string]int) row {
	out := row{place: r.Place, flags: r.Flags, version: r.Version,
		expires: disk.UnixSeconds(r.Expires)}
	if r.Deleted() {
		return out
	}
	if a.whole(name) {
		out.whole = string(r.Value)
	}
	out.parts = make([]Part, len(keys))
	if err := a.compiler.Parts(r.Value, keys, out.parts); err != nil {
		s.Log.Warn("record does not decode; questions leave it out", "place", r.Place, "name",
			r.Name, "err", err)
		out.bad = true
	}
	return out
}

func byPlace(a, b row) int { return strings.Compare(a.place, b.place) }
