package render

import (
	"crypto/sha256"
	"fmt"

	"clustermaster/wire"
)

// part is a packed piece of a context; the key is the hash of the bytes.
type part struct {
	key string
	raw []byte
}

// parts is a packed context. A worker keeps the parts that it was sent, because
// one minion's pillar has many files.
type parts struct{ grains, pillar, opts, vars part }

func (p *parts) all() [4]part { return [4]part{p.grains, p.pillar, p.opts, p.vars} }

func packParts(src Source, c Context) (*parts, error) {
	vars := place(src)
	for _, v := range c.Vars {
		if name, ok := v.Key.(string); ok {
			vars = vars.Set(name, v.Value)
		}
	}
	out := &parts{}
	for _, p := range []struct {
		name string
		from wire.Map
		to   *part
	}{{"grains", c.Grains, &out.grains}, {"pillar", c.Pillar, &out.pillar}, {"opts", c.Opts, &out.opts}, {"names", vars, &out.vars}} {
		raw, err := wire.PackNew(p.from)
		if err != nil {
			return nil, fmt.Errorf("pack %s for %s: %w", p.name, src.Path, err)
		}
		sum := sha256.Sum256(raw)
		*p.to = part{key: fmt.Sprintf("%x", sum[:16]), raw: raw}
	}
	return out, nil
}

// maxParts bounds the packed parts that one worker keeps, in bytes.
const maxParts = 16 << 20

// sent knows which parts a worker has, oldest first.
type sent struct {
	keys []string
	size map[string]int
	sum  int
}

// send returns what of p the worker lacks, and what it should forget.
func (s *sent) send(p *parts) (put wire.Map, drop []any) {
	if s.size == nil {
		s.size = map[string]int{}
	}
	needed := map[string]bool{}
	for _, e := range p.all() {
		if needed[e.key] {
			continue
		}
		needed[e.key] = true
		if _, ok := s.size[e.key]; !ok {
			s.size[e.key] = len(e.raw)
			s.sum += len(e.raw)
			put = append(put, wire.Pair{Key: e.key, Value: e.raw})
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
	for _, e := range p.all() {
		if needed[e.key] {
			s.keys = append(s.keys, e.key)
			needed[e.key] = false
		}
	}
	return put, drop
}
