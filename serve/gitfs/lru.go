package gitfs

import (
	"container/list"
	"encoding/hex"
	"sync"
)

// maxSums bounds the kept hashes of contents: about 100 bytes each.
const maxSums = 1 << 16

// sums keeps hashes of contents by their ids, in binary. It is safe for concurrent use.
type sums struct {
	mu sync.RWMutex // guards at
	at map[[20]byte]string
}

func (s *sums) get(id string) (sum string, ok bool) {
	var key [20]byte
	if len(id) != 2*len(key) {
		return "", false
	}
	if _, err := hex.Decode(key[:], []byte(id)); err != nil {
		return "", false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	sum, ok = s.at[key]
	return sum, ok
}

func (s *sums) put(id, sum string) {
	var key [20]byte
	if len(id) != 2*len(key) {
		return
	}
	if _, err := hex.Decode(key[:], []byte(id)); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = make(map[[20]byte]string)
	}
	for other := range s.at { // any of them
		if len(s.at) < maxSums {
			break
		}
		delete(s.at, other)
	}
	s.at[key] = sum
}

func (s *sums) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.at)
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
