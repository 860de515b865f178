package gitfs

import (
	"container/list"
	"sync"
)

// lru keeps what was used last, up to a cost. It is safe for concurrent use.
type lru[K comparable, V any] struct {
	mu    sync.Mutex // guards all below
	max   int
	cost  int
	order *list.List // of *lruEntry[K, V], the last used first
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

// put keeps a value, unless it alone would take more than a quarter.
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
