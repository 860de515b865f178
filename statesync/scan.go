package statesync

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// found is an entry of a tree as it is now.
type found struct {
	Item
	stat stat
}

// live is a root as it is now, sorted by path.
type live struct {
	items   []found
	skipped []string // entries that are not synced, and why
	notes   []string // properties of synced items that the other masters don't get
	// paths that can't be read or replaced here; they stay as they are, with everything below them
	held []string
}

// hold marks a path to stay as it is, with everything below it.
func (l *live) hold(path, why string, st stat) {
	st.kind = other
	l.held = append(l.held, path)
	l.skipped = append(l.skipped, fmt.Sprintf("%q: %s", path, why))
	l.items = append(l.items, found{Item: Item{Path: path, Kind: other}, stat: st})
}

// scanner reads a root. With blobs it also copies the file contents that the store lacks.
type scanner struct {
	hashes *hashes
	blobs  *blobs        // nil: only hash
	want   map[Sum]int64 // with blobs: copy only these; nil: all
	hurry  func(n int64) // called with the bytes read; may be nil
	buf    []byte        // for reading
	out    *live
	kept   map[string]hashed
	root   *rootDir
}

const pieceSize = 256 << 10 // bytes read, and sent between masters, at a time

// errNoRoot says that the folder of a root does not exist. fs.ErrNotExist does not say that: it may
// be about something else, like the blob store.
var errNoRoot = errors.New("the folder of the root does not exist")

// scan reads the root at dir. If the folder does not exist the error is errNoRoot.
func (sc *scanner) scan(ctx context.Context, dir string) (*live, error) {
	root, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errNoRoot, err)
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	sc.root, sc.out, sc.kept = root, &live{}, make(map[string]hashed)
	if sc.buf == nil {
		sc.buf = make([]byte, pieceSize)
	}
	if err := sc.dir(ctx, "", 0); err != nil {
		return nil, fmt.Errorf("read root %s: %w", dir, err)
	}
	sc.hashes.put(dir, sc.kept)
	slices.SortFunc(sc.out.items, func(a, b found) int { return strings.Compare(a.Path, b.Path) })
	return sc.out, nil
}

func (sc *scanner) dir(ctx context.Context, rel string, depth int) error {
	names, err := sc.root.names(rel)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		path := name
		if rel != "" {
			path = rel + "/" + name
		}
		if err := sc.entry(ctx, path, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (sc *scanner) entry(ctx context.Context, path, name string, depth int) error {
	st, err := sc.root.lstat(path)
	if gone(err) {
		return nil // deleted since it was listed
	}
	if err != nil {
		return err
	}
	if st.kind == Dir && skippedDir(name) || name == StagingDir {
		return nil
	}
	if len(path) > maxPath || depth > maxDepth {
		sc.out.skipped = append(sc.out.skipped, fmt.Sprintf("%q: too deep", path))
		return nil
	}
	if len(sc.out.items) >= maxItems {
		return fmt.Errorf("more than %d items", maxItems)
	}
	more, err := sc.root.peculiar(path)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if more.mount || st.kind == Dir && st.dev != sc.root.dev {
		sc.out.hold(path, "a mount point; it stays as it is", st)
		return nil
	}
	for _, note := range more.notes {
		sc.out.notes = append(sc.out.notes, fmt.Sprintf("%q: %s", path, note))
	}
	return sc.add(ctx, path, depth, st)
}

// add adds an entry that lstat found, and all below it, unless it was deleted since.
func (sc *scanner) add(ctx context.Context, path string, depth int, st stat) (err error) {
	f := found{Item: Item{Path: path, Kind: st.kind}, stat: st}
	switch st.kind {
	case Dir:
		f.Mode = st.mode
	case Link:
		if f.Target, err = sc.root.readlink(path); gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if rest, ok := belowRoot(sc.root.path, f.Target); ok {
			f.Kind, f.Target = RootLink, rest
		}
		if !staysInside(&f.Item) {
			f.Kind = other
			sc.out.skipped = append(sc.out.skipped,
				fmt.Sprintf("%q: the link leads out of the root", path))
		}
	case File:
		if f.stat, f.Sum, err = sc.file(ctx, path, st); err != nil {
			switch why := unreadable(err); {
			case gone(err):
				return nil
			case why != "":
				sc.out.hold(path, why, st)
				return nil
			}
			return err
		}
		f.Mode, f.Size = f.stat.mode, f.stat.size
	default:
		sc.out.skipped = append(sc.out.skipped,
			fmt.Sprintf("%q: neither file, folder nor link", path))
	}
	at := len(sc.out.items)
	sc.out.items = append(sc.out.items, f)
	if st.kind != Dir {
		return nil
	}
	err = sc.dir(ctx, path, depth) // errors below the folder were handled there
	if gone(err) {
		sc.out.items = sc.out.items[:at]
		return nil
	}
	if why := unreadable(err); why != "" {
		sc.out.items = sc.out.items[:at]
		sc.out.hold(path, why, st)
		return nil
	}
	return err
}

// gone reports whether an error of an entry says that it was deleted.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errStore) }

// unreadable says why an entry stays as it is; "" if the error is of another kind, which ends the
// scan.
func unreadable(err error) string {
	switch {
	case errors.Is(err, errStore): // not of the entry
		return ""
	case errors.Is(err, errMoving):
		return errMoving.Error()
	case errors.Is(err, fs.ErrPermission):
		return "it can't be read: permission denied; it stays as it is"
	case errors.Is(err, unix.EIO):
		return "it can't be read: input/output error; it stays as it is"
	}
	return ""
}

// belowRoot removes the root's folder from the beginning of a link's text.
func belowRoot(root, target string) (string, bool) {
	rest, ok := strings.CutPrefix(target, filepath.Clean(root))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return rest, true
}

// errMoving says that a file was written to while it was read.
var errMoving = errors.New("it is being written to; sync again when that is done")

func (sc *scanner) file(ctx context.Context, path string, st stat) (stat, Sum, error) {
	if sum, ok := sc.hashes.get(sc.root.path, path, st); ok && !sc.copies(sum, st.size) {
		sc.kept[path] = hashed{stat: st, sum: sum}
		return st, sum, nil
	}
	for range 3 {
		before, after, sum, read, err := sc.read(ctx, path)
		if err != nil {
			return stat{}, Sum{}, err
		}
		if before != after {
			continue
		}
		if sc.hashes.keepable(after, read) {
			sc.kept[path] = hashed{stat: after, sum: sum}
		}
		return after, sum, nil
	}
	return stat{}, Sum{}, &fs.PathError{Op: "read", Path: sc.root.path + "/" + path, Err: errMoving}
}

// copies reports whether the contents of a file must be copied to the store.
func (sc *scanner) copies(sum Sum, size int64) bool {
	if sc.blobs == nil || size == 0 {
		return false
	}
	if sc.want != nil {
		if _, ok := sc.want[sum]; !ok {
			return false
		}
	}
	return !sc.blobs.has(sum, size)
}

func (sc *scanner) read(ctx context.Context, path string) (before, after stat, sum Sum,
	at time.Time, err error) {
	f, err := sc.root.open(path)
	if err != nil {
		return
	}
	defer f.Close()
	if before, err = statFile(f); err != nil {
		return
	}
	at = time.Now()
	if sc.blobs != nil && sc.want == nil && before.size > 0 {
		sum, err = sc.blobs.ingest(ctx, io.LimitReader(f, before.size), sc.buf, sc.hurry)
	} else {
		h := sha256.New()
		err = sc.copy(ctx, h, io.LimitReader(f, before.size))
		h.Sum(sum[:0])
		if err == nil && sc.copies(sum, before.size) {
			if _, err = f.Seek(0, io.SeekStart); err == nil {
				_, err = sc.blobs.ingest(ctx, io.LimitReader(f, before.size), sc.buf, nil)
			}
		}
	}
	if err == nil {
		after, err = statFile(f)
	}
	return
}

func (sc *scanner) copy(ctx context.Context, w io.Writer, f io.Reader) error {
	for {
		n, err := f.Read(sc.buf)
		_, _ = w.Write(sc.buf[:n]) // a hash never fails
		if sc.hurry != nil {
			sc.hurry(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}
