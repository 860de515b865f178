package ringstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"clustermaster/test/knownbug"
)

// A deletion is known by its tombstone, and tombstones go after TombstoneFor. A master that was
// away meanwhile still has what was deleted, and nothing tells it so. Therefore whoever removes
// tombstones notes on disk, in the same batch, the masters that were away; such a one begins anew
// and is filled, as after damage. Until it knows that nobody has noted it, a master that was away
// for so long answers nothing by what it has.
const (
	// when this master was last in contact with others and had compared copies; seconds since 1970
	contactMeta = "contact"
	lackMeta    = "lack/" // node: that it lacks tombstones which are gone
)

// contactEvery is how often contact is noted.
const contactEvery = time.Minute

// errAway is what is answered until the others have been asked.
var errAway = errors.New("this master was away for longer than deletions are remembered, and has not heard the others yet")

// loadAway reads the notes on disk.
func (s *Store) loadAway() error {
	b, err := s.disk.meta(contactMeta)
	if err != nil {
		return err
	}
	if len(b) == 8 {
		s.contact.Store(int64(binary.BigEndian.Uint64(b)))
	}
	prefix := metaKey(lackMeta)
	it, err := s.disk.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return fmt.Errorf("read who lacks tombstones: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		s.lacking[string(it.Key()[len(prefix):])] = true
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("read who lacks tombstones: %w", err)
	}
	s.suspect()
	return nil
}

// suspect notes that this master may have been away for too long.
func (s *Store) suspect() {
	at := s.contact.Load()
	since := time.Unix(at, 0)
	if at == 0 || s.opts.Now().Sub(since) < s.opts.TombstoneFor || len(s.others()) == 0 {
		return
	}
	if !s.stale.Swap(true) {
		s.log.Warn("this master was away for longer than deletions are remembered; it answers by the others until they have been asked",
			"since", since.UTC())
	}
}

// mayForget reports whether tombstones may be removed: with a majority in contact, and copies
// compared.
func (s *Store) mayForget() bool {
	others, alive := s.others(), 0
	for _, node := range others {
		if s.peers.Alive(node) {
			alive++
		}
	}
	return 2*(alive+1) > len(others)+1 && !s.isBehind()
}

// noteLacking puts the masters that are away now into a batch that removes tombstones.
func (s *Store) noteLacking(b *pebble.Batch, g *group) error {
	if knownbug.Is(knownbug.TombstonesMerged) {
		return nil
	}
	for _, node := range s.others() {
		if s.peers.Alive(node) {
			continue
		}
		if err := b.Set(metaKey(lackMeta+node), nil, nil); err != nil {
			return err
		}
		g.after = append(g.after, func() {
			s.lackingMu.Lock()
			defer s.lackingMu.Unlock()
			s.lacking[node] = true
		})
	}
	return nil
}

// lackers are the masters that lack tombstones which are gone.
func (s *Store) lackers() []string {
	s.lackingMu.Lock()
	defer s.lackingMu.Unlock()
	others := s.others()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.lacking)),
		func(n string) bool { return !slices.Contains(others, n) })
}

// keepContact asks the others, where this master may have been away for too long, and notes when it
// was in contact.
func (s *Store) keepContact(ctx context.Context, others []string) error {
	s.suspect()
	asked := 0
	for _, node := range others {
		if !s.peers.Alive(node) {
			continue
		}
		asked++
		if !s.stale.Load() {
			continue
		}
		reply, err := s.askStatus(ctx, node, 0)
		if err != nil {
			return err
		}
		if slices.Contains(reply.Lacking, s.self) {
			if err := s.swap(ctx, toldAway,
				"it was away for longer than ring_tombstone_seconds"); err != nil {
				return err
			}
			s.contact.Store(s.opts.Now().Unix())
			s.stale.Store(false)
			return nil
		}
	}
	if asked == 0 {
		return nil
	}
	now := s.opts.Now()
	if s.stale.Load() {
		s.contact.Store(now.Unix())
		s.stale.Store(false)
	}
	if s.isBehind() || now.Sub(time.Unix(s.noted, 0)) < min(contactEvery, s.opts.TombstoneFor/10) {
		return nil
	}
	s.contact.Store(now.Unix())
	s.noted = now.Unix()
	return s.commit.do(ctx, &task{run: func(b *pebble.Batch, _ *group) error {
		return b.Set(metaKey(contactMeta),
			binary.BigEndian.AppendUint64(nil, uint64(now.Unix())), nil)
	}})
}

// filled forgets that a master lacks tombstones: it has answered with its digests, which one that
// was noted does only when it has been filled.
func (s *Store) filled(ctx context.Context, node string) error {
	s.lackingMu.Lock()
	noted := s.lacking[node]
	delete(s.lacking, node)
	s.lackingMu.Unlock()
	if !noted {
		return nil
	}
	return s.commit.do(ctx,
		&task{run: func(b *pebble.Batch, _ *group) error {
			return b.Delete(metaKey(lackMeta+node),
				nil)
		}})
}

// swap replaces the store by an empty one and returns when that is done. Message and why are for
// the log.
func (s *Store) swap(ctx context.Context, message, why string) error {
	done := make(chan struct{})
	select {
	case s.commit.swaps <- func() { defer close(done); s.replace(message, why) }:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return ErrClosed
	}
	<-done
	return nil
}
