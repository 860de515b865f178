package render

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"sync"

	"clustermaster/value"
)

// cache keeps the values of renders. The key of an entry is the hash of the source, its names and
// the parts of the context that its template can read. An entry is valid as long as the files that
// its render looked for are unchanged.
//
// The first render of a source shows which parts those are, from the syntax trees of all
// templates that took part (worker/renderworker/analysis.py). What a template reads can
// decide which others it imports, so a source's reads only grow: an entry made under fewer
// reads is never found under more.
type cache struct {
	max int64
	m   *metrics

	mu      sync.Mutex // guards what follows
	sources map[[sha256.Size]byte]*keptSource
	entries map[[sha256.Size]byte]*list.Element // of *entry
	order   *list.List                          // most recently used first
	size    int64
}

type keptSource struct {
	reads   reads
	entries int
}

type entry struct {
	key, source [sha256.Size]byte
	files       []dependency
	value       any
	size        int64
}

func newCache(size int64, m *metrics) *cache {
	return &cache{
		max: size, m: m, order: list.New(),
		sources: map[[sha256.Size]byte]*keptSource{},
		entries: map[[sha256.Size]byte]*list.Element{},
	}
}

// cacheKey is the hash of the source and its names. ok is false for a render that is not
// cached: the cache is off, no other render will be like it, or a renderer's result depends
// on more than the context.
func (j *job) cacheKey(pipe []stage) (key [sha256.Size]byte, ok bool) {
	if j.r.cache.max < 0 || j.src.Once {
		return key, false
	}
	h := sha256.New()
	for _, s := range pipe {
		if s.name == "gpg" || s.name == "py" || j.hosted(s.name) {
			return key, false
		}
		hashText(h, s.name)
		hashText(h, s.args)
	}
	vars, err := j.parts.get(varsRoot)
	if err != nil {
		return key, false
	}
	for _, text := range []string{j.src.Path, j.src.SLS, j.src.SaltEnv, string(j.src.Data),
		vars.key} {
		hashText(h, text)
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}

func hashText(h hash.Hash, text string) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
	h.Write([]byte(text))
}

// key extends the hash of the source by the parts of the context that its template can read.
func (j *job) key(source [sha256.Size]byte, r reads) (key [sha256.Size]byte, err error) {
	h := sha256.New()
	h.Write(source[:])
	for root := range varsRoot {
		if r[root].all {
			p, err := j.parts.get(root)
			if err != nil {
				return key, err
			}
			hashText(h, "*"+p.key)
			hashText(h, j.c.ID) // functions may use it
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(r[root].keySet)) {
			hashText(h, name)
			v, there := j.parts.from[root].Get(name)
			if !there {
				hashText(h, "")
				continue
			}
			raw, err := value.PackNew(v)
			if err != nil {
				return key, err
			}
			hashText(h, string(raw))
		}
		hashText(h, "end")
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// get returns a copy of a cached value.
func (c *cache) get(ctx context.Context, source [sha256.Size]byte, j *job) (any, bool) {
	e := c.find(source, j)
	if e == nil || !e.holds(ctx, j) {
		c.m.cache.WithLabelValues("miss").Inc()
		return nil, false
	}
	c.m.cache.WithLabelValues("hit").Inc()
	v, _ := duplicate(e.value)
	return v, true
}

func (c *cache) find(source [sha256.Size]byte, j *job) *entry {
	c.mu.Lock()
	s, ok := c.sources[source]
	var r reads
	if ok {
		r.union(s.reads) // a copy, because the other one grows
	}
	c.mu.Unlock()
	if !ok {
		return nil
	}
	key, err := j.key(source, r)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.entries[key]
	if !ok {
		return nil
	}
	c.order.MoveToFront(at)
	return at.Value.(*entry)
}

// holds reports whether the files that the render looked for are unchanged.
func (e *entry) holds(ctx context.Context, j *job) bool {
	for _, f := range e.files {
		data, found, err := j.h.File(ctx, f.saltenv, f.path)
		if err != nil || newDependency(f.saltenv, f.path, data, found) != f {
			return false
		}
	}
	return true
}

// put caches a value, unless the render used something that can't be checked later.
func (c *cache) put(source [sha256.Size]byte, j *job, val any) {
	if j.used.impure {
		c.m.cache.WithLabelValues("unkept").Inc()
		return
	}
	kept, size := duplicate(val)
	size += entrySize * int64(1+len(j.used.files))
	if size > c.max/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sources[source]
	if !ok {
		s = &keptSource{}
	}
	s.reads.union(j.used.reads)
	key, err := j.key(source, s.reads)
	if err != nil {
		return
	}
	c.sources[source] = s
	s.entries++
	if old, ok := c.entries[key]; ok {
		c.drop(old)
	}
	c.entries[key] = c.order.PushFront(&entry{key: key, source: source, files: j.used.files,
		value: kept, size: size})
	c.size += size
	for c.size > c.max {
		c.drop(c.order.Back())
	}
	c.m.cacheBytes.Set(float64(c.size))
}

func (c *cache) drop(at *list.Element) {
	e := c.order.Remove(at).(*entry)
	delete(c.entries, e.key)
	c.size -= e.size
	if s := c.sources[e.source]; s != nil {
		if s.entries--; s.entries == 0 {
			delete(c.sources, e.source)
		}
	}
}

const (
	entrySize = 500 // approximate overhead of an entry in bytes
	valueSize = 32
)

// duplicate copies a value, so that its receiver may change it, and estimates its memory in bytes.
func duplicate(v any) (any, int64) {
	size := int64(valueSize)
	switch v := v.(type) {
	case value.Map:
		out := make(value.Map, len(v))
		for i, p := range v {
			key, n := duplicate(p.Key)
			val, m := duplicate(p.Value)
			out[i] = value.Pair{Key: key, Value: val}
			size += n + m
		}
		return out, size
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			inner, n := duplicate(e)
			out[i] = inner
			size += n
		}
		return out, size
	case []byte:
		return slices.Clone(v), size + int64(len(v))
	case string:
		return v, size + int64(len(v))
	}
	return v, size
}
