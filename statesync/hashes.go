package statesync

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"clustermaster/store/durable"
)

const hashesMagic = "cmhashes1"

// hashes remembers what files contained, by root folder and path, so that an unchanged tree is not
// read again. It is kept on disk between runs; losing it costs only time. Safe for concurrent use.
type hashes struct {
	file string
	// minimum age of a file's last change when it was read, for its hash to be kept
	settle time.Duration

	mu     sync.Mutex // guards all below
	byRoot map[string]map[string]hashed
	dirty  bool
}

type hashed struct {
	stat
	sum Sum
}

// loadHashes reads the file. A missing or damaged one counts as empty.
func loadHashes(file string, settle time.Duration) *hashes {
	h := &hashes{file: file, settle: settle, byRoot: make(map[string]map[string]hashed)}
	b, err := os.ReadFile(file)
	if err != nil {
		return h
	}
	d, err := unseal(b)
	if err != nil {
		return h
	}
	d.magic(hashesMagic)
	byRoot := make(map[string]map[string]hashed)
	for range d.uint(maxScopes) {
		root := d.text(maxPath)
		m := make(map[string]hashed)
		for range d.uint(maxItems) {
			path := d.text(maxPath)
			e := hashed{stat: stat{
				kind: File, mode: uint32(d.uint(modeBits)), size: d.int(math.MaxInt64),
				dev: d.uint(math.MaxUint64), ino: d.uint(math.MaxUint64),
				mtime: int64(d.uint(math.MaxUint64)), ctime: int64(d.uint(math.MaxUint64)),
			}, sum: d.sum()}
			if d.err != nil {
				return h
			}
			m[path] = e
		}
		byRoot[root] = m
	}
	if d.end() == nil {
		h.byRoot = byRoot
	}
	return h
}

// get returns the hash of a file that looks as it did when it was read.
func (h *hashes) get(root, path string, st stat) (Sum, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.byRoot[root][path]
	if !ok || e.size != st.size || e.ino != st.ino || e.dev != st.dev || e.mtime != st.mtime ||
		e.ctime != st.ctime {
		return Sum{}, false
	}
	return e.sum, true
}

// keepable reports whether the hash of a file read at that time may be remembered: a file that
// changes twice within one tick of the file system's clock looks unchanged.
func (h *hashes) keepable(st stat, read time.Time) bool {
	return read.UnixNano()-max(st.ctime, st.mtime) > int64(h.settle)
}

// put replaces everything remembered about a root.
func (h *hashes) put(root string, found map[string]hashed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if maps.Equal(h.byRoot[root], found) {
		return
	}
	h.byRoot[root] = found
	h.dirty = true
}

// save writes the file if something changed. The file may be lost in a crash, but must never be
// half written.
func (h *hashes) save() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dirty {
		return nil
	}
	h.dirty = false
	e := &encoder{b: []byte(hashesMagic)}
	e.uint(uint64(len(h.byRoot)))
	for _, root := range slices.Sorted(maps.Keys(h.byRoot)) {
		e.text(root)
		e.uint(uint64(len(h.byRoot[root])))
		for path, f := range h.byRoot[root] {
			e.text(path)
			for _, v := range []uint64{uint64(f.mode), uint64(f.size), f.dev, f.ino,
				uint64(f.mtime), uint64(f.ctime)} {
				e.uint(v)
			}
			e.sum(f.sum)
		}
	}
	return durable.WriteFile(h.file, e.sealed())
}

// removeFile deletes a file. A missing file is no error.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
