// Package uploads keeps the files that minions push to the masters (cp.push, option file_recv).
//
// Lives here: the pieces of a file on the ring, putting them together, reading and listing them.
//
// Does not: decide who may push and which paths are allowed (package master), choose the masters
// for records (package ringstore).
//
// Guarantee: every master can read a file once all of it has arrived, and not before; until then
// readers get the previous file.
package uploads

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/vmihailenco/msgpack/v5"

	"clustermaster/store/allotment"
	"clustermaster/store/ringstore"
	"clustermaster/wire"
)

// stateName is the record with the state of a file. Pieces are named by upload and place.
const stateName = "state"

// maxPieces bounds the pieces of one file: a minion that pushes byte by byte is refused.
const maxPieces = 4096

// Sizes of a file and of a piece besides their content, in bytes: keys, the state, and the store's
// overhead.
const (
	fileCost  = 1024
	pieceCost = 256
)

// ErrNotFound is returned for a file that was not pushed, or not completely.
var ErrNotFound = errors.New("no such pushed file")

// records is the part of the ring store that this package uses.
type records interface {
	Write(ctx context.Context, place string, puts ...ringstore.Put) ([]ringstore.Result, error)
	Delete(ctx context.Context, space ringstore.Space, place string, names ...string) error
	Get(ctx context.Context, k ringstore.Key) (rec ringstore.Record, found bool, err error)
	Names(ctx context.Context, space ringstore.Space, place, prefix string) ([]string, error)
	Scan(ctx context.Context, space ringstore.Space, prefix string,
		fn func(ringstore.Record) error) (ringstore.Coverage, error)
}

// Files are the pushed files of the whole cluster. They are safe for concurrent use, but only one
// minion may push a given file at a time.
type Files struct {
	store  records
	kept   *allotment.Meter
	now    func() time.Time
	copies string // folder for copies of whole files; "" makes none
	log    *slog.Logger

	turns [64]sync.Mutex // serialize the pieces of a file, by a hash of its place
}

// New makes the store of pushed files on the ring store. now is the ring store's clock.
func New(store records, now func() time.Time) *Files { return &Files{store: store, now: now} }

// Limit bounds what is stored; call it before the first use. Append refuses anything beyond with
// allotment.ErrSpent.
func (f *Files) Limit(l allotment.Limits) { f.kept = allotment.New(l, f.count, f.now) }

// CopyTo makes Append also write each file that this master completes below dir, as Export does,
// before acknowledging the last piece. Call it before the first use. A copy that can't be written
// is only logged, because the file itself is on the ring.
func (f *Files) CopyTo(dir string, log *slog.Logger) { f.copies, f.log = dir, log }

// count adds up the bytes stored for each minion.
func (f *Files) count(ctx context.Context, add func(id string, bytes int64)) error {
	_, err := f.store.Scan(ctx, ringstore.SpacePushed, stateName, func(r ringstore.Record) error {
		id, _, ok := strings.Cut(r.Place, "/")
		var s state
		if !ok || r.Name != stateName || decode(r.Value, &s) != nil {
			return nil
		}
		add(id, fileCost+s.Whole.cost())
		if s.Present.Name != s.Whole.Name {
			add(id, s.Present.cost())
		}
		return nil
	})
	return err
}

// File is a pushed file.
type File struct {
	ID, Path string
	Size     int64
	At       time.Time // when its last piece arrived
}

// upload is one transfer of a file.
type upload struct {
	Name   string  `msgpack:"n"` // random
	Pieces []int64 `msgpack:"p"` // offset of each piece
	Size   int64   `msgpack:"s"` // so far
	At     int64   `msgpack:"t"` // Unix seconds
}

// cost is the size of its pieces in the store.
func (u *upload) cost() int64 { return u.Size + pieceCost*int64(len(u.Pieces)) }

// state describes what is stored of a file.
type state struct {
	Whole   upload `msgpack:"w"` // the last complete one; an empty name means none
	Present upload `msgpack:"u"` // the unfinished one
}

func place(id, path string) string { return id + "/" + path }

func pieceName(upload string, loc int64) string { return fmt.Sprintf("%s/%012x", upload, loc) }

func (f *Files) state(ctx context.Context, id, path string) (s state, err error) {
	r, found, err := f.store.Get(ctx, ringstore.Key{Space: ringstore.SpacePushed,
		Place: place(id, path), Name: stateName})
	if err != nil || !found {
		return s, err
	}
	if err := decode(r.Value, &s); err != nil {
		return s, fmt.Errorf("decode state of pushed file %s of %s: %w", path, id, err)
	}
	return s, nil
}

// decode reads a state. A field of a newer release is an error.
func decode(b []byte, s *state) error {
	dec := msgpack.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields(true)
	return dec.Decode(s)
}

// Append adds a piece that begins at offset loc; loc 0 starts the file over. size is that of the
// whole file, or negative if unknown: then after each piece the file counts as whole. Append
// returns false for a piece that begins neither where an earlier one began nor where the last one
// ended. A repeated piece replaces the earlier one and those after it, except in a whole file,
// which stays whole until it is started over. The error is allotment.ErrSpent, or the store's.
func (f *Files) Append(ctx context.Context, id, path string, loc, size int64, data []byte) (bool,
	error) {
	turn := &f.turns[xxhash.Sum64String(place(id, path))%uint64(len(f.turns))]
	turn.Lock()
	defer turn.Unlock()
	s, err := f.state(ctx, id, path)
	if err != nil {
		return false, err
	}
	known := s.Present.Name != ""
	var old []upload
	if loc == 0 {
		if s.Present.Name != s.Whole.Name {
			old = append(old, s.Present)
		}
		s.Present = upload{Name: rand.Text()}
	}
	u := &s.Present
	first, again := slices.BinarySearch(u.Pieces, loc)
	if u.Name == "" || loc != u.Size && !again || first >= maxPieces {
		return false, nil
	}
	if u.Name == s.Whole.Name && again && loc+int64(len(data)) < size {
		return true, nil // a whole file has it already, and those after it
	}
	behind := upload{Name: u.Name} // pieces to remove; the piece itself is overwritten
	if again {
		behind.Pieces = slices.Clone(u.Pieces[first+1:])
	}
	before := u.cost()
	u.Pieces, u.Size, u.At = append(u.Pieces[:first:first], loc), loc+
		int64(len(data)), f.now().Unix()
	cost := u.cost() - before
	if !known {
		cost += fileCost
	}
	done, err := f.kept.Take(ctx, id, cost)
	if err != nil {
		return false, fmt.Errorf("keep %s of %s: %w", path, id, err)
	}
	if size < 0 || u.Size >= size {
		if s.Whole.Name != u.Name {
			old = append(old, s.Whole)
		}
		s.Whole = *u
	}
	packed, err := msgpack.Marshal(s)
	if err != nil {
		done(false)
		return false, fmt.Errorf("pack state of pushed file: %w", err)
	}
	_, err = f.store.Write(ctx, place(id, path),
		ringstore.Put{Space: ringstore.SpacePushed, Name: pieceName(u.Name, loc), Value: data},
		ringstore.Put{Space: ringstore.SpacePushed, Name: stateName, Value: packed})
	done(err == nil)
	if err != nil {
		return false, err
	}
	for _, o := range old {
		if err := f.drop(ctx, id, path, o); err != nil {
			return false, err
		}
		f.kept.Give(id, o.cost())
	}
	if err := f.drop(ctx, id, path, behind); err != nil {
		return true, err
	}
	// Without a size each piece would write the whole file again.
	if f.copies != "" && size >= 0 && u.Size >= size {
		if _, err := f.Export(ctx, f.copies, id, path); err != nil {
			f.log.Warn("a pushed file is not written to cachedir; export it with salt-run pushed.export",
				"component", "uploads", "minion", id, "path", path, "err", err)
		}
	}
	return true, nil
}

// drop removes the pieces of an upload.
func (f *Files) drop(ctx context.Context, id, path string, u upload) error {
	names := make([]string, len(u.Pieces))
	for i, loc := range u.Pieces {
		names[i] = pieceName(u.Name, loc)
	}
	for some := range slices.Chunk(names, 256) {
		if err := f.store.Delete(ctx, ringstore.SpacePushed, place(id, path), some...); err != nil {
			return err
		}
	}
	return nil
}

// Content is a whole file as of its opening. It is readable until the file is pushed again.
type Content struct {
	f        *Files
	id, path string
	whole    upload
}

// Open returns a whole file, or ErrNotFound.
func (f *Files) Open(ctx context.Context, id, path string) (*Content, error) {
	s, err := f.state(ctx, id, path)
	if err != nil {
		return nil, err
	}
	if s.Whole.Name == "" {
		return nil, fmt.Errorf("read %s of %s: %w", path, id, ErrNotFound)
	}
	return &Content{f, id, path, s.Whole}, nil
}

// Size is its length in bytes.
func (c *Content) Size() int64 { return c.whole.Size }

// At is when its last piece arrived.
func (c *Content) At() time.Time { return time.Unix(c.whole.At, 0).UTC() }

// Version differs between two contents of one path.
func (c *Content) Version() string { return fmt.Sprintf("%s/%d", c.whole.Name, c.whole.Size) }

// pushed returns the i-th piece without the part that a later piece replaced.
func (c *Content) pushed(ctx context.Context, i int) ([]byte, error) {
	loc, end := c.whole.Pieces[i], c.whole.Size
	if i+1 < len(c.whole.Pieces) {
		end = c.whole.Pieces[i+1]
	}
	r, found, err := c.f.store.Get(ctx, ringstore.Key{Space: ringstore.SpacePushed,
		Place: place(c.id, c.path), Name: pieceName(c.whole.Name, loc)})
	if err != nil {
		return nil, err
	}
	if !found || int64(len(r.Value)) < end-loc {
		return nil, fmt.Errorf("read %s of %s: a piece at %d is missing; perhaps the file is being pushed again; "+
			"try again", c.path, c.id, loc)
	}
	return r.Value[:end-loc], nil
}

// Piece returns up to n bytes at loc, none at the end.
func (c *Content) Piece(ctx context.Context, loc int64, n int) ([]byte, error) {
	if loc < 0 || n <= 0 || loc >= c.whole.Size {
		return nil, nil
	}
	i, exact := slices.BinarySearch(c.whole.Pieces, loc)
	if !exact {
		i--
	}
	var out []byte
	for want := min(int64(n), c.whole.Size-loc); int64(len(out)) < want; i++ {
		data, err := c.pushed(ctx, i)
		if err != nil {
			return nil, err
		}
		data = data[loc+int64(len(out))-c.whole.Pieces[i]:]
		data = data[:min(int64(len(data)), want-int64(len(out)))]
		if out == nil && int64(len(data)) == want {
			return data, nil
		}
		out = append(out, data...)
	}
	return out, nil
}

// WriteTo writes a file's content to w, piece by piece.
func (f *Files) WriteTo(ctx context.Context, id, path string, w io.Writer) error {
	c, err := f.Open(ctx, id, path)
	if err != nil {
		return err
	}
	for i := range c.whole.Pieces {
		data, err := c.pushed(ctx, i)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// List calls fn with each whole file.
func (f *Files) List(ctx context.Context, fn func(File)) (ringstore.Coverage, error) {
	return f.store.Scan(ctx, ringstore.SpacePushed, stateName, func(r ringstore.Record) error {
		id, path, ok := strings.Cut(r.Place, "/")
		var s state
		if !ok || r.Name != stateName || decode(r.Value, &s) != nil || s.Whole.Name == "" {
			return nil
		}
		fn(File{ID: id, Path: path, Size: s.Whole.Size, At: time.Unix(s.Whole.At, 0).UTC()})
		return nil
	})
}

// Delete removes a file, and pieces that belong to no upload. An unknown file is not an error.
func (f *Files) Delete(ctx context.Context, id, path string) error {
	s, err := f.state(ctx, id, path)
	if err != nil {
		return err
	}
	names, err := f.store.Names(ctx, ringstore.SpacePushed, place(id, path), "")
	if err != nil {
		return err
	}
	for some := range slices.Chunk(names, 256) {
		if err := f.store.Delete(ctx, ringstore.SpacePushed, place(id, path), some...); err != nil {
			return err
		}
	}
	if s.Present.Name == "" {
		return nil
	}
	freed := fileCost + s.Whole.cost()
	if s.Present.Name != s.Whole.Name {
		freed += s.Present.cost()
	}
	f.kept.Give(id, freed)
	if f.copies != "" && filepath.IsLocal(path) && wire.ValidID(id) {
		_ = os.Remove(exported(f.copies, id, path))
	}
	return nil
}
