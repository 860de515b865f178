package query

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermaster/store/ringstore/disk"
)

// row has the parts of one record that questions read; tombstones have rows too.
type row struct {
	place   string
	flags   uint8
	bad     bool // the value does not decode
	version disk.Version
	expires int64  // seconds since 1970; 0: never
	whole   string // the value, if a look reads all of it
	parts   []Part
}

func (r *row) deleted() bool { return r.flags&disk.FlagDeleted != 0 }

// expired is like that of Record.
func (r *row) expired(now time.Time) bool {
	return !r.deleted() && r.expires != 0 && now.Unix() >= r.expires
}

// Approximate sizes in memory, in bytes.
const (
	rowBytes  = 88
	partBytes = 24
)

func (r *row) size() int64 {
	n := rowBytes + len(r.place)
	for _, p := range r.parts {
		n += partBytes + len(p.Text)
	}
	return int64(n)
}

// rows are the rows of one table with the requested parts. They don't change, so a reader needs no
// lock.
type rows struct {
	keys  map[string]int // index of a part in each row
	list  []row          // sorted by place
	bytes int64
}

func newRows(keys map[string]int, list []row) *rows {
	r := &rows{keys: keys, list: list}
	for i := range list {
		r.bytes += list[i].size()
	}
	return r
}

func (r *rows) covers(keys map[string]int) bool {
	for k := range keys {
		if _, ok := r.keys[k]; !ok {
			return false
		}
	}
	return true
}

// tableID names the records of one name in a partition.
type tableID struct {
	space     disk.Space
	name      string
	partition int
}

// table keeps the rows of some records between questions. The committer notes which records change;
// the next question reads only those again.
type table struct {
	mu   sync.Mutex // held while reading the disk; guards rows
	rows *rows      // nil: none are kept

	// locked after mu and parts.mu, and only briefly, because the committer waits for it; guards
	// all below
	noted   sync.Mutex
	watched bool // rows are kept or being read
	changed map[string]struct{}
	all     bool // all rows changed, not only those in changed
}

// maxNoted bounds the places that a table notes before it reads all again.
const maxNoted = 1024

func (t *table) note(place string) {
	t.noted.Lock()
	defer t.noted.Unlock()
	switch {
	case !t.watched || t.all:
	case len(t.changed) >= maxNoted:
		t.changed, t.all = nil, true
	default:
		if t.changed == nil {
			t.changed = map[string]struct{}{}
		}
		t.changed[place] = struct{}{}
	}
}

// take returns the changes since the last call, and makes the table note later ones.
func (t *table) take() (changed map[string]struct{}, all bool) {
	t.noted.Lock()
	defer t.noted.Unlock()
	changed, all = t.changed, t.all || !t.watched
	t.changed, t.all, t.watched = nil, false, true
	return changed, all
}

func (t *table) forget() {
	t.rows = nil
	t.noted.Lock()
	defer t.noted.Unlock()
	t.changed, t.all, t.watched = nil, false, false
}

// lookID names a part of the records of one name.
type lookID struct {
	space disk.Space
	name  string
	key   string
}

type lookUse struct {
	last    uint64
	refused bool // too large to keep
}

// MaxLooks bounds the number of different parts that are kept.
const MaxLooks = 64

// Parts keep in memory the parts of records that questions read, so that a question reads no disk
// and decodes nothing for unchanged records. They take at most limit bytes; the parts that were not
// used for longest go first.
type Parts struct {
	limit  int64
	spaces map[disk.Space]Compiler
	bytes  atomic.Int64

	mu     sync.RWMutex // never held together with a table's mu; guards all below
	tables map[tableID]*table
	looks  map[lookID]*lookUse
	count  uint64 // of uses
}

// NewParts makes Parts of at most limit bytes, for the spaces that have compilers.
func NewParts(limit int64, compilers map[disk.Space]Compiler) *Parts {
	return &Parts{limit: limit, spaces: compilers, tables: map[tableID]*table{},
		looks: map[lookID]*lookUse{}}
}

// Bytes returns the approximate memory of the parts.
func (p *Parts) Bytes() int64 { return p.bytes.Load() }

// Looks returns the number of different parts in memory, at most MaxLooks.
func (p *Parts) Looks() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.looks)
}

// Tables returns the number of tables, one for each name and partition that questions have read.
func (p *Parts) Tables() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.tables)
}

// Watches reports whether there can be questions about a space, whose changes Parts must then get.
func (p *Parts) Watches(space disk.Space) bool { return p.spaces[space] != nil }

// Changed passes changes to the tables, before the digests count them.
func (p *Parts) Changed(changed []disk.Changed) {
	if len(changed) == 0 {
		return
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, c := range changed {
		if t := p.tables[tableID{c.Key.Space, c.Key.Name, c.Partition}]; t != nil {
			t.note(c.Key.Place)
		}
	}
}

// Lost tells the tables that all records were lost.
func (p *Parts) Lost() {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, t := range p.tables {
		t.noted.Lock()
		t.changed, t.all = nil, true
		t.noted.Unlock()
	}
}

// Dropped tells the tables that cells were removed.
func (p *Parts) Dropped(gone map[disk.CellID]bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for id := range gone {
		for table, t := range p.tables {
			if table.space == id.Space && table.partition == int(id.Partition) {
				t.noted.Lock()
				t.changed, t.all = nil, true
				t.noted.Unlock()
			}
		}
	}
}

func (p *Parts) table(id tableID) *table {
	p.mu.RLock()
	t := p.tables[id]
	p.mu.RUnlock()
	if t != nil {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t = p.tables[id]; t == nil {
		t = &table{}
		p.tables[id] = t
	}
	return t
}

// use notes the use of parts; it returns false if one of them must not be kept.
func (p *Parts) use(space disk.Space, name string, keys map[string]int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(keys) > MaxLooks {
		return false
	}
	p.count++
	kept := true
	for k := range keys {
		id := lookID{space, name, k}
		u := p.looks[id]
		if u == nil {
			u = &lookUse{}
			p.looks[id] = u
		}
		u.last = p.count
		kept = kept && !u.refused
	}
	return kept
}

// trim removes parts until the limits hold. If the parts of one question are too large even alone,
// they are refused from then on. The caller must hold no table.
func (p *Parts) trim(space disk.Space, name string, keys map[string]int) {
	for {
		gone, found := p.victim(space, name, keys)
		if !found {
			return
		}
		p.mu.RLock()
		tables := maps.Clone(p.tables)
		p.mu.RUnlock()
		for id, t := range tables {
			if gone != (lookID{}) && (id.space != gone.space || id.name != gone.name) {
				continue
			}
			t.mu.Lock()
			switch {
			case t.rows == nil:
			case gone == (lookID{}):
				p.keep(t, nil)
			default:
				p.keep(t, t.rows.without(gone.key))
			}
			t.mu.Unlock()
		}
	}
}

// victim selects the parts to remove; the zero value means all. found is false if the limits hold.
func (p *Parts) victim(space disk.Space, name string, keys map[string]int) (gone lookID,
	found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	many := len(p.looks) > MaxLooks
	if !many && p.bytes.Load() <= p.limit {
		return lookID{}, false
	}
	var oldest *lookUse
	for id, u := range p.looks {
		if (many || !u.refused) && (oldest == nil || u.last < oldest.last) {
			gone, oldest = id, u
		}
	}
	if _, mine := keys[gone.key]; mine && !many && gone.space == space && gone.name == name {
		oldest.refused = true
	} else {
		delete(p.looks, gone)
	}
	return gone, true
}

// keep sets the rows of a table that the caller holds; nil removes its rows.
func (p *Parts) keep(t *table, r *rows) {
	if t.rows != nil {
		p.bytes.Add(-t.rows.bytes)
	}
	if r == nil {
		t.forget()
		return
	}
	p.bytes.Add(r.bytes)
	t.rows = r
}

// without returns the rows without one part, nil if it was the only one.
func (r *rows) without(key string) *rows {
	if _, ok := r.keys[key]; !ok {
		return r
	}
	if len(r.keys) == 1 {
		return nil
	}
	keys := map[string]int{}
	var from []int
	for k, at := range r.keys {
		if k != key {
			keys[k] = len(keys)
			from = append(from, at)
		}
	}
	list := slices.Clone(r.list)
	for i := range list {
		if list[i].parts == nil {
			continue
		}
		old := list[i].parts
		list[i].parts = make([]Part, len(from))
		for to, at := range from {
			list[i].parts[to] = old[at]
		}
	}
	return newRows(keys, list)
}

// keptRows returns the rows of a table, as they are on disk, with at least the parts that keys
// name. It reads the records that changed since its last call, or all.
func (s *Queries) keptRows(a *asked, name int, id tableID, keys map[string]int) (*rows, error) {
	t := s.Parts.table(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	changed, all := t.take()
	r := t.rows
	switch {
	case r == nil || all || !r.covers(keys) || len(changed) > 8+len(r.list)/8:
		if r != nil && !all {
			keys = maps.Clone(keys)
			for k := range r.keys {
				if _, ok := keys[k]; !ok {
					keys[k] = len(keys)
				}
			}
		}
		list, err := s.readRows(a, name, id, keys)
		if err != nil {
			s.Parts.keep(t, nil)
			return nil, err
		}
		r = newRows(keys, list)
	case len(changed) > 0:
		list := slices.Clone(r.list)
		for place := range changed {
			rec, found, err := s.Disk.Get(disk.Key{Space: id.space, Place: place, Name: id.name},
				id.partition)
			if err != nil {
				s.Parts.keep(t, nil)
				return nil, err
			}
			at, have := slices.BinarySearchFunc(list, place,
				func(r row, place string) int { return strings.Compare(r.place, place) })
			switch {
			case found && have:
				list[at] = s.rowOf(a, name, &rec, r.keys)
			case found:
				list = slices.Insert(list, at, s.rowOf(a, name, &rec, r.keys))
			case have:
				list = slices.Delete(list, at, at+1)
			}
		}
		r = newRows(r.keys, list)
	}
	s.Parts.keep(t, r)
	return r, nil
}
