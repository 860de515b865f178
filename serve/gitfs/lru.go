package gitfs

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"encoding/hex"
	"sync"
)

// Size of the table of hashes. What many minions request in turn fits; its memory is the same for
// ten files and for a million.
const (
	sumPlaces = 3 << 15 // about 5 MB with SHA-256
	sumTries  = 16      // places that an entry may have, from its first one
)

// sums keeps hashes of contents by their ids, in a table of a fixed size: one that is full of
// others forgets one of them. It is safe for concurrent use.
type sums struct {
	width int // bytes of a hash

	mu    sync.RWMutex // guards all below
	table []byte       // places of an id and a hash, both binary; nil before the first hash
}

// idBytes is the length of a SHA-1 id in binary. Hashes of contents with longer ids are not kept.
const idBytes = 20

// place returns where the hash of an id is in the table, and otherwise where it may be written to.
// The caller holds mu; the table is there.
func (s *sums) place(id []byte) (at []byte, found bool) {
	size := idBytes + s.width
	first := int(binary.BigEndian.Uint32(id) % sumPlaces)
	for i := range sumTries {
		at = s.table[(first+i)%sumPlaces*size:][:size]
		switch {
		case bytes.Equal(at[:idBytes], id):
			return at, true
		case bytes.Equal(at[:idBytes], noID[:]):
			return at, false
		}
	}
	// Ids are spread evenly, and so is what is forgotten for them.
	over := int(binary.BigEndian.Uint32(id[4:]) % sumTries)
	return s.table[(first+over)%sumPlaces*size:][:size], false
}

var noID [idBytes]byte

func (s *sums) get(id string) (sum []byte, ok bool) {
	key, ok := binaryID(id)
	if !ok {
		return nil, false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.table == nil {
		return nil, false
	}
	at, ok := s.place(key[:])
	if !ok {
		return nil, false
	}
	return bytes.Clone(at[idBytes:]), true
}

func (s *sums) put(id string, sum []byte) {
	key, ok := binaryID(id)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil {
		s.table = make([]byte, sumPlaces*(idBytes+s.width))
	}
	at, _ := s.place(key[:])
	copy(at, key[:])
	copy(at[idBytes:], sum)
}

func (s *sums) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = nil
}

// binaryID returns an id in binary, unless it is one that the table does not keep.
func binaryID(id string) (key [idBytes]byte, ok bool) {
	if len(id) != 2*idBytes {
		return key, false
	}
	_, err := hex.Decode(key[:], []byte(id))
	return key, err == nil && key != noID
}

// lru keeps the most recently used values, up to a cost. It is safe for concurrent use.
type lru[K comparable, V any] struct {
	mu    sync.Mutex // guards all below
	max   int
	cost  int
	order *list.List // of *lruEntry[K, V], the most recent first
	at    map[K]*list.Element
}

type lruEntry[K comparable, V any] struct {
	key  K
	v    V
	cost int
}

func newLRU[K comparable, V any](most int) *lru[K, V] {
	return &lru[K, V]{max: most, order: list.New(), at: make(map[K]*list.Element)}
}

func (l *lru[K, V]) get(key K) (v V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.at[key]
	if !ok {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).v, true
}

// put keeps a value, unless it alone costs more than a quarter of the bound.
func (l *lru[K, V]) put(key K, v V, cost int) {
	if cost > l.max/4 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.at[key]; ok {
		l.drop(e)
	}
	l.at[key] = l.order.PushFront(&lruEntry[K, V]{key, v, cost})
	l.cost += cost
	for l.cost > l.max {
		l.drop(l.order.Back())
	}
}

func (l *lru[K, V]) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order.Init()
	clear(l.at)
	l.cost = 0
}

// drop forgets an entry; the caller holds mu.
func (l *lru[K, V]) drop(e *list.Element) {
	entry := l.order.Remove(e).(*lruEntry[K, V])
	delete(l.at, entry.key)
	l.cost -= entry.cost
}
