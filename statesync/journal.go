package statesync

import (
	"fmt"
	"math"
)

const journalMagic = "cmjourn1"

// journal holds the steps of an install whose files are staged. Once it is on stable storage the
// install will complete, however often this master stops meanwhile.
type journal struct {
	tree  Tree
	kept  string // name of the folder for items kept aside
	roots []journalRoot
}

type journalRoot struct {
	Scope
	dir string
	ops []op
}

func (j *journal) encode() []byte {
	e := &encoder{b: []byte(journalMagic)}
	e.uint(uint64(j.tree))
	e.text(j.kept)
	e.uint(uint64(len(j.roots)))
	for _, r := range j.roots {
		e.text(r.Env)
		e.uint(uint64(r.Root))
		e.text(r.dir)
		e.uint(uint64(len(r.ops)))
		for i := range r.ops {
			o := &r.ops[i]
			e.uint(uint64(o.kind))
			e.text(o.path)
			e.bool(o.keep)
			e.uint(uint64(o.item.Kind))
			e.uint(uint64(o.item.Mode))
			e.uint(uint64(o.item.Size))
			e.sum(o.item.Sum)
			e.text(o.item.Target)
			e.uint(uint64(o.old.kind))
			e.uint(uint64(o.old.size))
			e.uint(o.old.ino)
			e.uint(uint64(o.old.mtime))
		}
	}
	return e.sealed()
}

func decodeJournal(b []byte) (*journal, error) {
	d, err := unseal(b)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	d.magic(journalMagic)
	j := &journal{tree: Tree(d.uint(math.MaxUint8)), kept: d.text(maxName)}
	for range d.uint(maxScopes) {
		r := journalRoot{Scope: Scope{d.text(maxName), int(d.uint(maxScopes))},
			dir: d.text(maxPath)}
		for range d.uint(4 * maxItems) {
			o := op{kind: opKind(d.uint(math.MaxUint8)), path: d.text(maxPath), keep: d.bool()}
			o.item = Item{
				Path: o.path, Kind: Kind(d.uint(math.MaxUint8)), Mode: uint32(d.uint(modeBits)),
				Size: d.int(math.MaxInt64), Sum: d.sum(), Target: d.text(maxPath),
			}
			o.old = stat{kind: Kind(d.uint(math.MaxUint8)), size: d.int(math.MaxInt64),
				ino: d.uint(math.MaxUint64), mtime: int64(d.uint(math.MaxUint64))}
			if d.err == nil && (o.kind < opClear || o.kind > opMode || checkPath(o.path) != nil) {
				d.fail("step")
			}
			if d.err != nil {
				return nil, fmt.Errorf("read journal: %w", d.err)
			}
			r.ops = append(r.ops, o)
		}
		j.roots = append(j.roots, r)
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return j, nil
}
