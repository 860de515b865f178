package statesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"

	"clustermaster/statesync/syncpb"
	"clustermaster/transport/pace"
)

// Bounds of one request for contents.
const (
	batchBlobs = 256
	batchBytes = 64 << 20
)

// need is a content that this master lacks.
type need struct {
	sum  Sum
	size int64
}

// alone waits until nobody else writes to parts of the blob store.
func (s *Store) alone(ctx context.Context) (leave func(), err error) {
	select {
	case s.holding <- struct{}{}:
		return func() { <-s.holding }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fetchManifest gets a manifest into the blob store and reads it.
func (s *Store) fetchManifest(ctx context.Context, t *treeState, manifest Sum, size int64,
	from []string) (*Manifest, error) {
	if size <= 0 || size > maxManifest {
		return nil, fmt.Errorf("fetch manifest %s: %d bytes", manifest, size)
	}
	count := func(n int64) { t.addMoved(manifest, n) }
	if err := s.fetchAll(ctx, []need{{manifest, size}}, from, count, nil); err != nil {
		return nil, fmt.Errorf("fetch manifest: %w", err)
	}
	b, err := s.blobs.load(manifest, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("fetch manifest: %w", err)
	}
	m, err := DecodeManifest(b)
	if err != nil {
		return nil, err
	}
	if m.Tree != t.tree {
		return nil, fmt.Errorf("manifest of %s instead of %s: %w", m.Tree, t.tree, ErrCorrupt)
	}
	return m, nil
}

// hold makes sure that this master's blob store has a manifest and all of its contents on stable
// storage. It takes contents from files of this master's own roots where it can, and fetches the
// rest from the first node that has it. Only one hold runs at a time, because two would write to
// the same parts.
func (s *Store) hold(ctx context.Context, t *treeState, manifest Sum, size int64, from []string,
	p *progress) (*Manifest, error) {
	leave, err := s.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	m, err := s.fetchManifest(ctx, t, manifest, size, from)
	if err != nil {
		return nil, err
	}
	s.pins.put(t.tree, manifest, m)
	lack := s.lacking(m)
	if len(lack) > 0 {
		if err := s.takeOwn(ctx, m); err != nil {
			return nil, noSpace(err, s.blobs.dir)
		}
		lack = s.lacking(m)
	}
	total := int64(0)
	for _, n := range lack {
		total += n.size - s.blobs.partSize(n.sum, n.size)
	}
	p.setTotals(total, int64(len(lack)))
	if free, err := s.opts.room(s.blobs.dir); err == nil && uint64(total) > free {
		return nil, &NoRoomError{Dir: s.blobs.dir, Need: total, Have: int64(min(free, 1<<62))}
	}
	count := func(n int64) {
		t.addMoved(manifest, n)
		p.add(n, 0)
	}
	if err := s.fetchAll(ctx, lack, from, count, p); err != nil {
		return nil, noSpace(err, s.blobs.dir)
	}
	if err := s.fault("held"); err != nil {
		return nil, err
	}
	return m, s.blobs.flush()
}

// lacking lists what the blob store lacks, in a fixed order.
func (s *Store) lacking(m *Manifest) []need {
	var out []need
	for sum, size := range m.sums() {
		if !s.blobs.has(sum, size) {
			out = append(out, need{sum, size})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].sum.String() < out[j].sum.String() })
	return out
}

// takeOwn copies contents that this master's roots have already, so the first sync of trees that
// were kept equal by other means transfers almost nothing.
func (s *Store) takeOwn(ctx context.Context, m *Manifest) error {
	want := make(map[Sum]int64)
	for _, n := range s.lacking(m) {
		want[n.sum] = n.size
	}
	for _, r := range m.Roots {
		dir, ok := s.dirOf(m.Tree, r.Scope)
		if !ok {
			continue
		}
		sc := scanner{hashes: s.hashes, blobs: s.blobs, want: want}
		if _, err := sc.scan(ctx, dir); err != nil && !errors.Is(err, errNoRoot) {
			return err
		}
	}
	return nil
}

// fetchAll fetches contents and tries one node after the other. It reports bytes to count and
// contents to p.
func (s *Store) fetchAll(ctx context.Context, lack []need, from []string, count func(n int64),
	p *progress) error {
	var failed []error
	missing := lack[:0:0]
	for _, n := range lack {
		if !s.blobs.has(n.sum, n.size) {
			missing = append(missing, n)
		}
	}
	for _, node := range from {
		if len(missing) == 0 {
			break
		}
		if node == s.peers.Self() || !s.peers.Alive(node) {
			continue
		}
		var left []need
		for len(missing) > 0 {
			n, bytes := 0, int64(0)
			for n < len(missing) && n < batchBlobs &&
				(n == 0 || bytes+missing[n].size <= batchBytes) {
				bytes += missing[n].size
				n++
			}
			rest, err := s.fetch(ctx, node, missing[:n], count)
			p.add(0, int64(n-len(rest)))
			left = append(left, rest...)
			missing = missing[n:]
			if err != nil {
				if cause := context.Cause(ctx); cause != nil {
					return cause
				}
				if errors.Is(err, errStore) {
					return err // another master's copy would not fit either
				}
				failed = append(failed, fmt.Errorf("fetch from %s: %w", idOf(node), err))
				left = append(left, missing...)
				break
			}
		}
		missing = left
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d contents, the first %s, are on no reachable master: %w",
			len(missing), missing[0].sum, errors.Join(append(failed, fs.ErrNotExist)...))
	}
	return nil
}

// fetch fetches one batch from one node and returns what the node did not give.
func (s *Store) fetch(ctx context.Context, node string, batch []need,
	count func(n int64)) (left []need, err error) {
	conn, err := s.peers.Conn(node)
	if err != nil {
		return batch, err
	}
	ctx, quiet, stop := pace.Quiet(ctx, silence, pace.ErrSilent)
	defer stop()
	req := &syncpb.BlobsRequest{}
	var now *part // the part whose pieces are arriving
	defer func() {
		if now != nil {
			now.leave()
		}
	}()
	// only the first can have been cut short
	first, err := s.blobs.begin(batch[0].sum, batch[0].size)
	if err != nil {
		return batch, err
	}
	now = first
	for i, n := range batch {
		b := &syncpb.Blob{Sum: n.sum[:], Size: n.size}
		if i == 0 {
			b.Offset = first.have
		} else {
			b.Offset = s.blobs.partSize(n.sum, n.size)
		}
		req.Blobs = append(req.Blobs, b)
	}
	stream, err := syncpb.NewSyncClient(conn).Blobs(ctx, req)
	if err != nil {
		return batch, err
	}
	at := 0 // index of now
	for {
		quiet.Reset(silence)
		p, err := stream.Recv()
		quiet.Stop() // the time of writing does not count
		switch {
		case errors.Is(err, io.EOF) && at == len(batch):
			return left, nil
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		case err != nil && context.Cause(ctx) != nil:
			err = context.Cause(ctx)
		case err == nil && (at >= len(batch) || int(p.GetIndex()) != at):
			err = fmt.Errorf("piece of blob %d instead of %d: %w", p.GetIndex(), at, errDamaged)
		}
		if err != nil {
			return append(left, batch[min(at, len(batch)):]...), err
		}
		if now == nil {
			if now, err = s.blobs.begin(batch[at].sum, batch[at].size); err != nil {
				return append(left, batch[at:]...), err
			}
		}
		if err := now.write(p.GetData()); err != nil {
			s.giveUp(now, batch[at], err)
			now = nil
			return append(left, batch[at:]...), err
		}
		s.met.fetched.Add(float64(len(p.GetData())))
		count(int64(len(p.GetData())))
		if len(p.GetData()) > 0 {
			if err := s.fault("fetched"); err != nil {
				return append(left, batch[at:]...), err
			}
		}
		if !p.GetEnd() {
			continue
		}
		if p.GetMissing() {
			now.leave() // another master may have the rest
			left = append(left, batch[at])
		} else if err := now.end(); errors.Is(err, errDamaged) {
			s.met.damaged.Inc()
			s.log.Warn("a master sent wrong contents; they are fetched from another one",
				"peer", idOf(node), "sum", batch[at].sum.String(), "err", err)
			left = append(left, batch[at])
		} else if err != nil {
			now = nil
			return append(left, batch[at:]...), err
		}
		now = nil
		at++
	}
}

// giveUp deletes a part that can't become its content, or has no space.
func (s *Store) giveUp(p *part, n need, err error) {
	p.leave()
	s.blobs.dropPart(n.sum)
	if errors.Is(err, errDamaged) {
		s.met.damaged.Inc()
	}
}
