package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"clustermaster/value"
)

// part is a packed piece of a context. key is the hash of its bytes.
type part struct {
	key string
	raw []byte
}

// root is the number of a piece of a context.
type root int

const (
	grainsRoot root = iota
	pillarRoot
	optsRoot
	varsRoot // the names of the source's own place, and Context.Vars
	roots
)

func (r root) String() string { return [roots]string{"grains", "pillar", "opts", "vars"}[r] }

// parts is a context. Each piece is packed when it is first needed. A worker keeps the pieces that
// it got, because one minion's pillar consists of many files.
type parts struct {
	from [roots]value.Map
	made [roots]part
	// hasSDB reports whether the context has an address of sdb.
	hasSDB func() bool
}

func newParts(src Source, c Context) *parts {
	vars := place(src)
	for _, v := range c.Vars {
		if name, ok := v.Key.(string); ok {
			vars = vars.Set(name, v.Value)
		}
	}
	from := [roots]value.Map{c.Grains, c.Pillar, c.Opts, vars}
	return &parts{from: from, hasSDB: sync.OnceValue(func() bool {
		return slices.ContainsFunc(from[:], func(m value.Map) bool { return mentions(m, "sdb://") })
	})}
}

func (p *parts) get(r root) (part, error) {
	if p.made[r].raw == nil {
		raw, err := value.PackNew(p.from[r])
		if err != nil {
			return part{}, fmt.Errorf("pack %s of a template's context: %w", r, err)
		}
		sum := sha256.Sum256(raw)
		p.made[r] = part{key: hex.EncodeToString(sum[:16]), raw: raw}
	}
	return p.made[r], nil
}

func (p *parts) all() (out [roots]part, err error) {
	for r := range roots {
		if out[r], err = p.get(r); err != nil {
			return out, err
		}
	}
	return out, nil
}

// maxParts bounds the packed parts that one worker keeps, in bytes.
const maxParts = 16 << 20

// sent records which parts a worker has, oldest first.
type sent struct {
	keys []string
	size map[string]int
	sum  int
}

// send returns the parts that the worker lacks and the keys that it should drop.
func (s *sent) send(all [roots]part) (put value.Map, drop []any) {
	if s.size == nil {
		s.size = map[string]int{}
	}
	needed := map[string]bool{}
	for _, e := range all {
		if needed[e.key] {
			continue
		}
		needed[e.key] = true
		if _, ok := s.size[e.key]; !ok {
			s.size[e.key] = len(e.raw)
			s.sum += len(e.raw)
			put = append(put, value.Pair{Key: e.key, Value: e.raw})
		}
	}
	kept := s.keys[:0]
	for _, k := range s.keys {
		switch {
		case needed[k]: // moves to the end
		case s.sum > maxParts:
			s.sum -= s.size[k]
			delete(s.size, k)
			drop = append(drop, k)
		default:
			kept = append(kept, k)
		}
	}
	s.keys = kept
	for _, e := range all {
		if needed[e.key] {
			s.keys = append(s.keys, e.key)
			needed[e.key] = false
		}
	}
	return put, drop
}
