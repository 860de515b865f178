package statesync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"clustermaster/store/durable"
)

// blobs keeps contents on disk under their SHA-256. Contents survive a crash once flush has
// returned. Those written just before a crash may be damaged, so every use hashes them again. Safe
// for concurrent use.
type blobs struct {
	dir string
	low func() error // why it accepts no more, or nil; set before any other use
}

func openBlobs(dir string) (*blobs, error) {
	b := &blobs{dir: dir, low: func() error { return nil }}
	if err := os.MkdirAll(b.parts(), 0o700); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	if err := b.recheck(); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	return b, nil
}

// recheck deletes what a crash of the machine may have left: contents newer than the last flush
// that do not have their hash.
func (b *blobs) recheck() error {
	var flushed time.Time
	if st, err := os.Stat(b.stamp()); err == nil {
		flushed = st.ModTime()
	}
	return b.each(func(s Sum, path string, st fs.FileInfo) error {
		if s == (Sum{}) || !st.ModTime().After(flushed) {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil || Sum(h.Sum(nil)) != s {
			b.drop(s)
		}
		return nil
	})
}

// each calls fn with every file of the store; s is zero for a file that is no whole content.
func (b *blobs) each(fn func(s Sum, path string, st fs.FileInfo) error) error {
	dirs, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if !dir.IsDir() {
			continue
		}
		part := dir.Name() == filepath.Base(b.parts())
		files, err := os.ReadDir(filepath.Join(b.dir, dir.Name()))
		if err != nil {
			return err
		}
		for _, f := range files {
			st, err := f.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			var s Sum
			if n, err := hex.Decode(s[:], []byte(f.Name())[:min(len(f.Name()), 2*len(s))]); part ||
				err != nil || n != len(s) {
				s = Sum{}
			}
			if err := fn(s, filepath.Join(b.dir, dir.Name(), f.Name()), st); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *blobs) stamp() string         { return filepath.Join(b.dir, "flushed") }
func (b *blobs) parts() string         { return filepath.Join(b.dir, "parts") }
func (b *blobs) path(s Sum) string     { return filepath.Join(b.dir, s.String()[:2], s.String()) }
func (b *blobs) partPath(s Sum) string { return filepath.Join(b.parts(), s.String()) }

// has reports whether the store has a content, and if so marks it as still wanted, for gc. A size
// below 0 matches any.
func (b *blobs) has(s Sum, size int64) bool {
	st, err := os.Lstat(b.path(s))
	if err != nil || size >= 0 && st.Size() != size {
		return false
	}
	if now := time.Now(); now.Sub(st.ModTime()) > time.Minute {
		_ = os.Chtimes(b.path(s), now, now) // at worst gc removes it, and it is fetched again
	}
	return true
}

func (b *blobs) open(s Sum) (*os.File, error) { return os.Open(b.path(s)) }

// drop removes a damaged content.
func (b *blobs) drop(s Sum) { _ = os.Remove(b.path(s)) }

// place moves a whole content from where it was written to its place. It makes each folder with its
// first content: making all 256 would be a good part of a master's start.
func (b *blobs) place(from string, s Sum) error {
	err := os.Rename(from, b.path(s))
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(b.path(s)), 0o700); err == nil {
			err = os.Rename(from, b.path(s))
		}
	}
	return err
}

// ingest copies r to its end into the store and hashes it.
func (b *blobs) ingest(ctx context.Context, r io.Reader, buf []byte, read func(n int64)) (Sum,
	error) {
	if err := b.low(); err != nil {
		return Sum{}, storeError(err)
	}
	f, err := os.CreateTemp(b.parts(), "new-*")
	if err != nil {
		return Sum{}, storeError(err)
	}
	fail := func(err error) (Sum, error) {
		return Sum{},
			errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	h := sha256.New()
	for {
		n, err := r.Read(buf)
		h.Write(buf[:n])
		if _, werr := f.Write(buf[:n]); werr != nil {
			return fail(storeError(werr))
		}
		if read != nil {
			read(int64(n))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fail(err)
		}
	}
	var s Sum
	h.Sum(s[:0])
	if err := f.Close(); err != nil {
		return Sum{}, errors.Join(storeError(err), os.Remove(f.Name()))
	}
	if err := b.place(f.Name(), s); err != nil {
		return Sum{}, errors.Join(storeError(err), os.Remove(f.Name()))
	}
	return s, nil
}

// put stores bytes from memory, on stable storage.
func (b *blobs) put(p []byte) (Sum, error) {
	s := sumOf(p)
	if b.has(s, int64(len(p))) {
		return s, nil
	}
	err := os.Mkdir(filepath.Dir(b.path(s)), 0o700)
	if err == nil {
		err = durable.SyncDir(b.dir)
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err == nil {
		err = durable.WriteFile(b.path(s), p)
	}
	if err != nil {
		return Sum{}, storeError(err)
	}
	return s, nil
}

// load reads a content that fits into memory, and checks it.
func (b *blobs) load(s Sum, limit int64) ([]byte, error) {
	f, err := b.open(s)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(p)) > limit || sumOf(p) != s {
		b.drop(s)
		return nil, fmt.Errorf("read blob %s: %w", s, ErrCorrupt)
	}
	return p, nil
}

// part is a content that is being fetched. What arrived before a stop is used again.
type part struct {
	b    *blobs
	sum  Sum
	size int64
	f    *os.File
	h    hash.Hash
	have int64
}

// errStore says that this master's own blob store could not be written to.
var errStore = errors.New("write to the blob store")

func storeError(err error) error { return fmt.Errorf("%w: %w", errStore, err) }

// errDamaged says that fetched bytes are not what was asked for.
var errDamaged = errors.New("the fetched content has the wrong hash")

// begin opens the part of a content and hashes what is stored of it already.
func (b *blobs) begin(s Sum, size int64) (*part, error) {
	if err := b.low(); err != nil {
		return nil, storeError(err)
	}
	f, err := os.OpenFile(b.partPath(s), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, storeError(err)
	}
	p := &part{b: b, sum: s, size: size, f: f, h: sha256.New()}
	n, err := io.CopyBuffer(p.h, struct{ io.Reader }{f}, make([]byte, pieceSize))
	if err != nil || n > size {
		if err := errors.Join(err, f.Truncate(0)); err != nil {
			return nil, errors.Join(storeError(err), f.Close())
		}
		p.h.Reset()
		n = 0
	}
	if _, err := f.Seek(n, io.SeekStart); err != nil {
		return nil, errors.Join(storeError(err), f.Close())
	}
	p.have = n
	return p, nil
}

func (p *part) write(b []byte) error {
	if p.have+int64(len(b)) > p.size {
		return errDamaged
	}
	if _, err := p.f.Write(b); err != nil {
		return storeError(err)
	}
	p.h.Write(b)
	p.have += int64(len(b))
	return nil
}

// end makes the part a content of the store. It deletes a damaged one.
func (p *part) end() error {
	var s Sum
	p.h.Sum(s[:0])
	if err := p.f.Close(); err != nil {
		return storeError(err)
	}
	if s != p.sum || p.have != p.size {
		return errors.Join(errDamaged, os.Remove(p.f.Name()))
	}
	if err := p.b.place(p.f.Name(), s); err != nil {
		return storeError(err)
	}
	return nil
}

// partSize returns how many bytes of a content have arrived before.
func (b *blobs) partSize(s Sum, size int64) int64 {
	st, err := os.Lstat(b.partPath(s))
	if err != nil || st.Size() > size {
		return 0
	}
	return st.Size()
}

func (b *blobs) dropPart(s Sum) { _ = os.Remove(b.partPath(s)) }

// leave keeps the part for another attempt.
func (p *part) leave() { _ = p.f.Close() } // a lost tail is fetched again

// flush puts everything in the store on stable storage.
func (b *blobs) flush() error {
	before := time.Now().Add(-time.Second) // files have the time of a coarser clock
	d, err := os.Open(b.dir)
	if err != nil {
		return fmt.Errorf("sync blob store: %w", err)
	}
	if err := errors.Join(unix.Syncfs(int(d.Fd())), d.Close()); err != nil {
		return fmt.Errorf("sync blob store: %w", err)
	}
	if err := os.WriteFile(b.stamp(), nil, 0o600); err != nil {
		return storeError(err)
	}
	if err := os.Chtimes(b.stamp(), before, before); err != nil {
		return storeError(err)
	}
	return nil
}

// gc removes contents that are not in keep and were not wanted for the grace period: a sync under
// way may need them.
func (b *blobs) gc(keep map[Sum]struct{}, grace time.Duration) (n int, freed int64, err error) {
	old := time.Now().Add(-grace)
	err = b.each(func(s Sum, path string, st fs.FileInfo) error {
		if _, ok := keep[s]; ok || st.ModTime().After(old) {
			return nil
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		n++
		freed += st.Size()
		return nil
	})
	return n, freed, err
}
