package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// askTries is how often a question is asked because the ring changed meanwhile.
const askTries = 8

// Ask sends a question about the records of a space to the masters that hold them, in parallel. It
// calls fn with each record for which a term holds: its place and its hits, once, in no particular
// order, not concurrently. places limits the question to these (at most 1024, sorted); nil asks
// about all. The space's Compiler, in Options, reads questions.
//
// The first live owner of each partition judges it, and the others confirm its digest. If digests
// differ, or an owner goes away, all live owners judge and the newest version of each record
// counts. So every record that was acknowledged before the question is judged in that version or a
// later one; the coverage says which partitions are uncertain.
func (s *Queries) Ask(ctx context.Context, space disk.Space, question []byte, places []string,
	fn func(place string, hits []byte)) (Coverage, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if len(places) > MaxPlaces {
		return Coverage{}, fmt.Errorf("ask about %d places, at most %d: %w", len(places), MaxPlaces,
			disk.ErrTooLarge)
	}
	a, err := s.compile(space, question)
	if err != nil {
		return Coverage{}, fmt.Errorf("ask: %w", err)
	}
	for try := 1; ; try++ {
		v, err := s.Members.Current(ctx)
		if err != nil {
			return Coverage{}, fmt.Errorf("ask: %w", err)
		}
		q := &inquiry{s: s, v: v, a: a, question: question, places: places,
			failed: map[string]bool{}, held: map[int][]string{}, unsure: map[int]bool{}}
		err = q.run(ctx)
		switch {
		case err == nil:
			return q.finish(began, fn), nil
		case errors.Is(err, errOldPeer):
			return s.askByScan(ctx, a, places, fn)
		case errors.Is(err, rings.ErrLeft) && try < askTries:
			s.Retried()
			continue
		}
		return Coverage{}, fmt.Errorf("ask: %w", err)
	}
}

// inquiry is one running question, by one view of the rings.
type inquiry struct {
	s        *Queries
	v        *rings.View
	a        *asked
	question []byte
	places   []string

	failed map[string]bool  // nodes that did not answer; it does not ask them again
	own    error            // why this master's own records were not asked
	held   map[int][]string // by partition, the nodes that hold copies for others
	unsure map[int]bool     // partitions
	agreed int              // partitions
	hits   []hit
	all    int // partitions in the question
}

// hit is a record for which a term holds.
type hit struct {
	place string
	hits  []byte
}

// reply is one node's answer.
type reply struct {
	node   string
	sums   map[int]disk.Sum
	held   []uint32
	chunks []*ringpb.Verdicts
	left   bool
	err    error
}

func (q *inquiry) run(ctx context.Context) error {
	rest := q.partitions()
	q.all = len(rest)
	var err error
	if len(q.places) == 0 {
		if rest, err = q.agree(ctx, rest); err != nil {
			return err
		}
	}
	q.agreed = q.all - len(rest)
	for len(rest) > 0 {
		if rest, err = q.merge(ctx, rest); err != nil {
			return err
		}
	}
	return nil
}

func (q *inquiry) finish(began time.Time, fn func(place string, hits []byte)) Coverage {
	took := time.Since(began)
	for _, h := range q.hits {
		fn(h.place, h.hits)
	}
	q.s.Asked(took, q.agreed, q.all-q.agreed-len(q.unsure), len(q.unsure))
	return Coverage{Partitions: q.v.Latest().Partitions(), Incomplete: len(q.unsure)}
}

// partitions returns the partitions that the question is about.
func (q *inquiry) partitions() []int {
	var out []int
	if len(q.places) == 0 {
		for p := range q.v.Latest().Partitions() {
			out = append(out, p)
		}
		return out
	}
	for _, place := range q.places {
		out = append(out, q.v.Latest().Partition(place))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reachable reports whether the question can ask a node.
func (q *inquiry) reachable(node string) bool {
	if node == q.s.Members.Self() {
		if err := q.s.Withheld(); err != nil {
			q.own = err
			return false
		}
	}
	return !q.failed[node] && q.s.Members.Alive(node)
}

// agree lets the first live owner of each partition judge it, while all live members send their
// digests. It returns the partitions for which that is not enough.
func (q *inquiry) agree(ctx context.Context, partitions []int) (rest []int, err error) {
	judges := make(map[int]string, len(partitions))
	work := map[string][]int{}
	for _, node := range q.v.Members() {
		if q.reachable(node) {
			work[node] = nil
		}
	}
	for _, p := range partitions {
		for _, node := range q.v.Base.Owners(p) {
			if _, ok := work[node]; ok {
				judges[p] = node
				work[node] = append(work[node], p)
				break
			}
		}
	}
	replies, err := q.ask(ctx, work, false)
	if err != nil {
		return nil, err
	}
	for node, r := range replies {
		for _, p := range r.held {
			q.held[int(p)] = append(q.held[int(p)], node)
		}
	}
	settled := make(map[int]bool, len(partitions))
	for _, p := range partitions {
		if settled[p] = q.confirmed(p, judges[p], replies); !settled[p] {
			rest = append(rest, p)
		}
	}
	for node, r := range replies {
		for _, c := range r.chunks {
			width := q.a.judge.Width()
			for i, place := range c.Places {
				place := string(place)
				if p := q.v.Latest().Partition(place); settled[p] && judges[p] == node {
					q.hits = append(q.hits, hit{place, c.Hits[i*width : (i+1)*width]})
				}
			}
		}
	}
	return rest, nil
}

// confirmed reports whether enough owners have the same records of a partition as its judge, and no
// node holds more.
func (q *inquiry) confirmed(p int, judge string, replies map[string]*reply) bool {
	r := replies[judge]
	if r == nil || len(q.held[p]) > 0 {
		return false
	}
	heard := 0
	for _, node := range q.v.Base.Owners(p) {
		other := replies[node]
		if other == nil {
			continue
		}
		heard++
		if other.sums[p] != r.sums[p] {
			return false
		}
	}
	return heard >= q.v.Base.ReadQuorum()
}

// sources returns the nodes that may have records of a partition: its live owners, the nodes that
// hold copies for others, and if owners are missing also those that may have the missing owners'
// records. sure is false if too few owners are among them.
func (q *inquiry) sources(p int) (nodes []string, sure bool) {
	add := func(list []string) {
		for _, node := range list {
			if q.reachable(node) && !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
	}
	owners := q.v.Base.Owners(p)
	add(owners)
	live := len(nodes)
	sure = live >= q.v.Base.ReadQuorum()
	add(q.held[p])
	if !sure {
		add(q.v.Owners(p))
	}
	if live < len(owners) {
		add(q.v.Members())
	}
	return nodes, sure
}

// merge lets all nodes that may have records of the partitions judge them; of each record the
// winning version counts. It returns the partitions that it must ask about again because one of
// those nodes went away.
func (q *inquiry) merge(ctx context.Context, partitions []int) (rest []int, err error) {
	work := map[string][]int{}
	of := make(map[int][]string, len(partitions))
	for _, p := range partitions {
		nodes, sure := q.sources(p)
		of[p] = nodes
		if len(nodes) == 0 && q.own != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, q.own)
		}
		if !sure {
			q.unsure[p] = true
		}
		for _, node := range nodes {
			work[node] = append(work[node], p)
		}
	}
	replies, err := q.ask(ctx, work, true)
	if err != nil {
		return nil, err
	}
	whole := make(map[int]bool, len(partitions))
	for _, p := range partitions {
		if whole[p] = !slices.ContainsFunc(of[p],
			func(n string) bool { return replies[n] == nil }); !whole[p] {
			rest = append(rest, p)
		}
	}
	best := map[versionKey]*version{}
	width := q.a.judge.Width()
	for _, r := range replies {
		for _, c := range r.chunks {
			for i, place := range c.Places {
				k := versionKey{string(place), c.Names[i]}
				if !whole[q.v.Latest().Partition(k.place)] || len(q.places) > 0 &&
					!slices.Contains(q.places, k.place) {
					continue
				}
				x := version{disk.Version{Clock: c.Clocks[i], Node: c.Nodes[i]}, uint8(c.Flags[i]),
					c.Hits[i*width : (i+1)*width]}
				if old := best[k]; old == nil ||
					disk.Wins(x.flags, x.Version, old.flags, old.Version) {
					best[k] = &x
				}
			}
		}
	}
	for k, x := range best {
		if x.flags&disk.FlagDeleted == 0 && anyBit(x.hits) {
			q.hits = append(q.hits, hit{k.place, x.hits})
		}
	}
	return rest, nil
}

// versionKey names a record that several masters judged.
type versionKey struct {
	place string
	name  uint32
}

// version is the verdict of one of them.
type version struct {
	disk.Version
	flags uint8
	hits  []byte
}

// ends reports whether this master's own error ends the question, because the other masters could
// not answer it either. Else they do, as for any other master.
func ends(err error) bool {
	return errors.Is(err, ErrTooCostly) || errors.Is(err, disk.ErrTooLarge) ||
		errors.Is(err, disk.ErrClosed)
}

// ask sends the question to the nodes at the same time. Nodes that don't answer count as failed. It
// returns an error if the ring was given up meanwhile, if a node is too old for questions, or if
// ctx ends.
func (q *inquiry) ask(ctx context.Context, work map[string][]int, versions bool) (map[string]*reply,
	error) {
	var wg sync.WaitGroup
	replies := make([]*reply, 0, len(work))
	for node, partitions := range work {
		r := &reply{node: node, sums: map[int]disk.Sum{}}
		replies = append(replies, r)
		req := &ringpb.AskRequest{
			Clock: q.s.Clock.Read(), Epoch: q.v.Latest().Epoch(), Base: q.v.Base.Epoch(),
			Space: uint32(q.a.space), Question: q.question, Versions: versions,
		}
		for _, p := range partitions {
			req.Partitions = append(req.Partitions, uint32(p))
		}
		for _, place := range q.places {
			req.Places = append(req.Places, []byte(place))
		}
		wg.Add(1)
		if !q.s.Spawn(func() { defer wg.Done(); r.err = q.askNode(ctx, r, req) }) {
			wg.Done()
			r.err = disk.ErrClosed
		}
	}
	wg.Wait()
	out := make(map[string]*reply, len(replies))
	for _, r := range replies {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case r.node == q.s.Members.Self() && ends(r.err):
			return nil, r.err
		case status.Code(r.err) == codes.Unimplemented:
			return nil, errOldPeer
		case status.Code(r.err) == CodeTooCostly: // and would be for the others
			return nil, fmt.Errorf("%s: %w", r.node, ErrTooCostly)
		case r.err != nil:
			q.s.Log.Debug("a master did not answer a question; the other copies do", "node", r.node,
				"err", r.err)
			q.failed[r.node] = true
			if r.node == q.s.Members.Self() {
				q.own = r.err
			}
		case r.left && q.movedOn():
			return nil, rings.ErrLeft
		case r.left:
			q.failed[r.node] = true // it has not yet heard of the ring
		default:
			out[r.node] = r
		}
	}
	return out, nil
}

// movedOn reports whether this master reads by another ring by now. It has none at first after its
// store was replaced.
func (q *inquiry) movedOn() bool {
	now := q.s.Members.View()
	return now == nil || now.Base != q.v.Base
}

// askNode collects the answer of one node.
func (q *inquiry) askNode(ctx context.Context, r *reply, req *ringpb.AskRequest) error {
	size := 0
	done := false
	take := func(c *ringpb.Verdicts) error {
		n := len(c.Places)
		if done || len(c.Hits) != n*q.a.judge.Width() || req.Versions &&
			(len(c.Names) != n || len(c.Clocks) != n || len(c.Nodes) != n || len(c.Flags) != n) {
			return fmt.Errorf("answer of %s: %w", r.node, disk.ErrCorrupt)
		}
		size += len(c.Hits) + 32*n
		for _, place := range c.Places {
			size += len(place)
		}
		if size > q.s.MaxList {
			return fmt.Errorf("answer of more than %d bytes: %w", q.s.MaxList, disk.ErrTooLarge)
		}
		for _, x := range c.Cells {
			r.sums[int(x.Partition)] = disk.Sum{Sum: x.Sum, Count: int64(x.Count)}
		}
		r.held = append(r.held, c.Held...)
		if n > 0 {
			r.chunks = append(r.chunks, c)
		}
		done, r.left = c.Done, c.Left
		return nil
	}
	if r.node == q.s.Members.Self() {
		return q.s.Answer(ctx, req, take)
	}
	ctx, watch := q.s.whileAlive(ctx, r.node)
	defer watch.end()
	stream, err := q.s.Peers.Ask(ctx, r.node, req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", r.node, err)
	}
	for {
		c, err := stream.Recv()
		watch.heard()
		if errors.Is(err, io.EOF) && done {
			return nil
		}
		if err != nil {
			return fmt.Errorf("ask %s: %w", r.node, err)
		}
		q.s.Clock.Hear(c.Clock)
		if err := take(c); err != nil {
			return err
		}
	}
}

// watch ends a context when a node goes away or says nothing for ReadTimeout.
type watch struct {
	cancel context.CancelFunc
	words  chan struct{}
	over   chan struct{}
}

func (s *Queries) whileAlive(ctx context.Context, node string) (context.Context, *watch) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel, words: make(chan struct{}, 1), over: make(chan struct{})}
	go func() {
		defer close(w.over)
		defer cancel()
		look := time.NewTicker(s.LookAgain)
		defer look.Stop()
		last := time.Now()
		for s.Members.Alive(node) && time.Since(last) < s.ReadTimeout {
			select {
			case <-ctx.Done():
				return
			case <-w.words:
				last = time.Now()
			case <-look.C:
			}
		}
	}()
	return ctx, w
}

// heard notes that the node sent something.
func (w *watch) heard() {
	select {
	case w.words <- struct{}{}:
	default:
	}
}

func (w *watch) end() {
	w.cancel()
	<-w.over
}

// askByScan answers a question by reading all records here, because some master is too old to
// judge.
func (s *Queries) askByScan(ctx context.Context, a *asked, places []string,
	fn func(place string, hits []byte)) (Coverage, error) {
	hits := make([]byte, a.judge.Width())
	var cover Coverage
	for n, name := range a.names {
		keys := a.keys(n)
		c, err := s.Scan(ctx, a.space, name, func(r disk.Record) error {
			if r.Name != name || len(places) > 0 && !slices.Contains(places, r.Place) {
				return nil
			}
			row := s.rowOf(a, n, &r, keys)
			if a.hit(n, &row, keys, hits); anyBit(hits) {
				fn(strings.Clone(r.Place), slices.Clone(hits))
			}
			if err := a.judge.Err(); err != nil {
				return fmt.Errorf("%w: %w", ErrTooCostly, err)
			}
			return nil
		})
		if err != nil {
			return c, fmt.Errorf("ask: %w", err)
		}
		cover = Coverage{Partitions: c.Partitions, Incomplete: max(cover.Incomplete, c.Incomplete)}
	}
	return cover, nil
}
