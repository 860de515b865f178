package statesync

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"
)

const recordMagic = "cmrecord1"

// Head says which contents of a tree every master should have. A zero Seq means that none was
// published yet.
type Head struct {
	Tree     Tree
	Seq      uint64
	Manifest Sum
	Size     int64  // of the manifest in bytes
	Source   string // id of the master whose tree it is
	Force    bool   // replace drift by the source's contents
	At       time.Time
}

// is reports whether two heads are the same publication.
func (h Head) is(o Head) bool {
	return h.Tree == o.Tree && h.Seq == o.Seq && h.Manifest == o.Manifest
}

// record is what this master installed last of a tree.
type record struct {
	head     Head
	copied   bool // a joiner's copy was made, or none was needed
	roots    []installedRoot
	manifest *Manifest // nil before the first head
}

// installedRoot is a root that has the head. In another folder its next sync is a first sync.
type installedRoot struct {
	Scope
	dir string
}

// has reports whether a root was synced before, to this folder.
func (r *record) has(s Scope, dir string) bool {
	return slices.Contains(r.roots, installedRoot{s, dir})
}

func (h *Head) encode(e *encoder) {
	e.uint(uint64(h.Tree))
	e.uint(h.Seq)
	e.sum(h.Manifest)
	e.uint(uint64(h.Size))
	e.text(h.Source)
	e.bool(h.Force)
	e.uint(uint64(max(0, h.At.UnixMilli())))
}

func (d *decoder) head() Head {
	return Head{
		Tree: Tree(d.uint(math.MaxUint8)), Seq: d.uint(math.MaxUint64), Manifest: d.sum(),
		Size:   d.int(maxManifest),
		Source: d.text(maxPath), Force: d.bool(), At: time.UnixMilli(d.int(math.MaxInt64)).UTC(),
	}
}

func (r *record) encode() []byte {
	e := &encoder{b: []byte(recordMagic)}
	r.head.encode(e)
	e.bool(r.copied)
	e.uint(uint64(len(r.roots)))
	for _, root := range r.roots {
		e.text(root.Env)
		e.uint(uint64(root.Root))
		e.text(root.dir)
	}
	e.bool(r.manifest != nil)
	if r.manifest != nil {
		e.text(string(r.manifest.Encode()))
	}
	return e.sealed()
}

func decodeRecord(b []byte) (*record, error) {
	d, err := unseal(b)
	if err != nil {
		return nil, err
	}
	d.magic(recordMagic)
	r := &record{head: d.head(), copied: d.bool()}
	for range d.uint(maxScopes) {
		r.roots = append(r.roots, installedRoot{Scope{d.text(maxName), int(d.uint(maxScopes))},
			d.text(maxPath)})
		if d.err != nil {
			break
		}
	}
	if d.bool() {
		text := d.text(maxManifest)
		if d.err == nil {
			if r.manifest, err = DecodeManifest([]byte(text)); err != nil {
				return nil, err
			}
		}
	}
	return r, d.end()
}

// readRecord reads a record. A missing one counts as empty. A damaged one is an error, because
// without it this master can't distinguish drift from what was synced.
func readRecord(path string, tree Tree) (*record, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &record{head: Head{Tree: tree}}, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(b)
	if err != nil {
		return nil,
			fmt.Errorf("read %s: %w; remove it to have the next sync of %s treated as the first one", path, err, tree)
	}
	return r, nil
}
