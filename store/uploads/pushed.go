// Package uploads keeps the files that minions push to the masters (cp.push, option file_recv).
//
// Lives here: the pieces of a file on the ring, putting them together, reading and listing them.
//
// Does not: decide who may push and what a path may be (package master), where records lie (package ringstore).
//
// Guarantee: a file is readable through every master once all of it was taken, and not before; until then the former one is.
package uploads

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"clustermaster/store/ringstore"
)

// stateName is the record that says what there is of a file; pieces are named by upload and place.
const stateName = "state"

// maxPieces bounds the pieces of one file: a minion that pushes byte by byte is refused.
const maxPieces = 4096

// ErrNotFound is returned for a file that was not pushed, or not wholly.
var ErrNotFound = errors.New("no such pushed file")

// records is what this package needs of the ring store.
type records interface {
	Write(ctx context.Context, place string, puts ...ringstore.Put) ([]ringstore.Result, error)
	Delete(ctx context.Context, space ringstore.Space, place string, names ...string) error
	Get(ctx context.Context, k ringstore.Key) (rec ringstore.Record, found bool, err error)
	Scan(ctx context.Context, space ringstore.Space, prefix string, fn func(ringstore.Record) error) (ringstore.Coverage, error)
}

// Files are the pushed files of the whole cluster. They are safe for concurrent use; one file is pushed by one minion at a time.
type Files struct {
	store records
	now   func() time.Time
}

// New makes the room on the ring store.
func New(store records) *Files { return &Files{store: store, now: time.Now} }

// File is a pushed file.
type File struct {
	ID, Path string
	Size     int64
	At       time.Time // when its last piece came
}

// upload is one sending of a file.
type upload struct {
	Name   string  `msgpack:"n"` // random
	Pieces []int64 `msgpack:"p"` // where each piece begins
	Size   int64   `msgpack:"s"` // so far
	At     int64   `msgpack:"t"` // Unix seconds
}

// state is what there is of a file.
type state struct {
	Whole   upload `msgpack:"w"` // the last that is complete; no name: none
	Present upload `msgpack:"u"` // the one under way
}

func place(id, path string) string { return id + "/" + path }

func pieceName(upload string, loc int64) string { return fmt.Sprintf("%s/%012x", upload, loc) }

func (f *Files) state(ctx context.Context, id, path string) (s state, err error) {
	r, found, err := f.store.Get(ctx, ringstore.Key{Space: ringstore.SpacePushed, Place: place(id, path), Name: stateName})
	if err != nil || !found {
		return s, err
	}
	if err := decode(r.Value, &s); err != nil {
		return s, fmt.Errorf("decode state of pushed file %s of %s: %w", path, id, err)
	}
	return s, nil
}

// decode reads a state; a field of a newer release is an error.
func decode(b []byte, s *state) error {
	dec := msgpack.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields(true)
	return dec.Decode(s)
}

// Append adds a piece that begins at loc; loc 0 begins the file anew. size is the whole file's, below 0 if it is not known: then what
// there is after each piece is the file. False: the piece leaves a gap. A piece that comes again takes the place of the former one.
func (f *Files) Append(ctx context.Context, id, path string, loc, size int64, data []byte) (bool, error) {
	s, err := f.state(ctx, id, path)
	if err != nil {
		return false, err
	}
	var old []upload
	if loc == 0 {
		if s.Present.Name != "" && s.Present.Name != s.Whole.Name {
			old = append(old, s.Present)
		}
		s.Present = upload{Name: rand.Text()}
	}
	u := &s.Present
	if u.Name == "" || loc > u.Size || len(u.Pieces) >= maxPieces {
		return false, nil
	}
	for len(u.Pieces) > 0 && u.Pieces[len(u.Pieces)-1] >= loc {
		u.Pieces = u.Pieces[:len(u.Pieces)-1]
	}
	u.Pieces, u.Size, u.At = append(u.Pieces, loc), loc+int64(len(data)), f.now().Unix()
	if size < 0 || u.Size >= size {
		if s.Whole.Name != u.Name {
			old = append(old, s.Whole)
		}
		s.Whole = *u
	}
	packed, err := msgpack.Marshal(s)
	if err != nil {
		return false, fmt.Errorf("pack state of pushed file: %w", err)
	}
	_, err = f.store.Write(ctx, place(id, path),
		ringstore.Put{Space: ringstore.SpacePushed, Name: pieceName(u.Name, loc), Value: data},
		ringstore.Put{Space: ringstore.SpacePushed, Name: stateName, Value: packed})
	if err != nil {
		return false, err
	}
	for _, o := range old {
		if err := f.drop(ctx, id, path, o); err != nil {
			return false, err
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

// WriteTo writes a file's content to w, piece by piece.
func (f *Files) WriteTo(ctx context.Context, id, path string, w io.Writer) error {
	s, err := f.state(ctx, id, path)
	if err != nil {
		return err
	}
	if s.Whole.Name == "" {
		return fmt.Errorf("read %s of %s: %w", path, id, ErrNotFound)
	}
	at := int64(0)
	for i, loc := range s.Whole.Pieces {
		r, found, err := f.store.Get(ctx, ringstore.Key{Space: ringstore.SpacePushed, Place: place(id, path), Name: pieceName(s.Whole.Name, loc)})
		if err != nil {
			return err
		}
		end := s.Whole.Size
		if i+1 < len(s.Whole.Pieces) {
			end = s.Whole.Pieces[i+1]
		}
		if !found || loc != at || int64(len(r.Value)) < end-loc {
			return fmt.Errorf("read %s of %s: a piece at %d is missing, it may be pushed anew just now; try again", path, id, loc)
		}
		if _, err := w.Write(r.Value[:end-loc]); err != nil {
			return err
		}
		at = end
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

// Delete removes a file; one that is not there is no error.
func (f *Files) Delete(ctx context.Context, id, path string) error {
	s, err := f.state(ctx, id, path)
	if err != nil {
		return err
	}
	if err := f.store.Delete(ctx, ringstore.SpacePushed, place(id, path), stateName); err != nil {
		return err
	}
	if err := f.drop(ctx, id, path, s.Present); err != nil {
		return err
	}
	return f.drop(ctx, id, path, s.Whole)
}
