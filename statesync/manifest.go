package statesync

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
)

const manifestMagic = "cmroots1"

// Manifest is the content of one tree: its roots sorted by environment and number, their items
// sorted by path.
type Manifest struct {
	Tree  Tree
	Roots []Root
}

// Root is the items of one scope. A folder comes before its contents.
type Root struct {
	Scope
	Items []Item
}

// Root returns the items of a scope; false if the manifest lacks it.
func (m *Manifest) Root(s Scope) ([]Item, bool) {
	if m == nil {
		return nil, false
	}
	i, ok := slices.BinarySearchFunc(m.Roots, s, func(r Root, s Scope) int { return r.compare(s) })
	if !ok {
		return nil, false
	}
	return m.Roots[i].Items, true
}

// Totals counts items and the bytes of files.
func (m *Manifest) Totals() (items int, bytes int64) {
	for _, r := range m.Roots {
		items += len(r.Items)
		for i := range r.Items {
			bytes += r.Items[i].Size
		}
	}
	return items, bytes
}

// sums returns the contents that the manifest needs, with their sizes. Empty files need none.
func (m *Manifest) sums() map[Sum]int64 {
	out := make(map[Sum]int64)
	for _, r := range m.Roots {
		for i := range r.Items {
			if it := &r.Items[i]; it.Kind == File && it.Size > 0 {
				out[it.Sum] = it.Size
			}
		}
	}
	return out
}

// Encode writes the manifest; equal manifests give equal bytes.
func (m *Manifest) Encode() []byte {
	e := &encoder{b: []byte(manifestMagic)}
	e.uint(uint64(m.Tree))
	e.uint(uint64(len(m.Roots)))
	for _, r := range m.Roots {
		e.text(r.Env)
		e.uint(uint64(r.Root))
		e.uint(uint64(len(r.Items)))
		for i := range r.Items {
			it := &r.Items[i]
			e.text(it.Path)
			e.uint(uint64(it.Kind))
			switch it.Kind {
			case File:
				e.uint(uint64(it.Mode))
				e.uint(uint64(it.Size))
				e.sum(it.Sum)
			case Dir:
				e.uint(uint64(it.Mode))
			default:
				e.text(it.Target)
			}
		}
	}
	return e.b
}

// DecodeManifest reads a manifest. It refuses one that could lead out of a root: such paths and
// links, items whose folder is missing or is a link, unsorted and repeated items. The error wraps
// ErrCorrupt.
func DecodeManifest(b []byte) (*Manifest, error) {
	if len(b) > maxManifest {
		return nil, fmt.Errorf("read manifest: %d bytes: %w", len(b), ErrCorrupt)
	}
	d := &decoder{b: b}
	d.magic(manifestMagic)
	m := &Manifest{Tree: Tree(d.uint(math.MaxUint8))}
	if d.err == nil && m.Tree != FileRoots && m.Tree != PillarRoots {
		d.fail(m.Tree.String())
	}
	items := 0
	for range d.uint(maxScopes) {
		r := Root{Scope: Scope{Env: d.text(maxName), Root: int(d.uint(maxScopes))}}
		n := int(d.uint(maxItems))
		if items += n; items > maxItems {
			d.fail("more items than a tree may have")
		}
		if n := len(m.Roots); n > 0 && m.Roots[n-1].compare(r.Scope) >= 0 || r.Env == "" {
			d.fail("order of roots")
		}
		if d.err == nil {
			d.items(&r, n)
		}
		if d.err != nil {
			return nil, fmt.Errorf("read manifest: %w", d.err)
		}
		m.Roots = append(m.Roots, r)
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
}

func (d *decoder) items(r *Root, n int) {
	dirs := map[string]bool{"": true}
	for range n {
		it := Item{Path: d.text(maxPath), Kind: Kind(d.uint(math.MaxUint8))}
		switch it.Kind {
		case File:
			it.Mode, it.Size, it.Sum = uint32(d.uint(modeBits)), d.int(math.MaxInt64), d.sum()
		case Dir:
			it.Mode = uint32(d.uint(modeBits))
		default:
			it.Target = d.text(maxPath)
		}
		if d.err != nil {
			return
		}
		if err := it.check(); err != nil {
			d.fail(err.Error())
			return
		}
		if n := len(r.Items); n > 0 && r.Items[n-1].Path >= it.Path {
			d.fail(fmt.Sprintf("order of paths at %q", it.Path))
			return
		}
		if !dirs[parentOf(it.Path)] {
			d.fail(fmt.Sprintf("%q: not in a folder of the manifest", it.Path))
			return
		}
		if it.Kind == Dir {
			dirs[it.Path] = true
		}
		r.Items = append(r.Items, it)
	}
}

// sumOf returns the name of encoded bytes in the blob store.
func sumOf(b []byte) Sum { return sha256.Sum256(b) }

// sort brings the roots into a manifest's order.
func (m *Manifest) sort() {
	slices.SortFunc(m.Roots, func(a, b Root) int { return a.compare(b.Scope) })
}
