package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"clustermaster/store/ringstore/diskfs"
	"clustermaster/store/seal"
)

// Options bound and time the store. The zero value of each field means the default.
type Options struct {
	// width of the buckets in which expired records are dropped; default 1 h
	BucketWidth   time.Duration
	WriteQueue    int   // writes that wait for the committer; default 4096
	CacheBytes    int64 // Pebble's block cache; default 4 MiB
	MemTableBytes int   // one of at most three; default 4 MiB
	// how long deleted ranges may wait before a flush of their own; default 10 s; negative: no such
	// flush
	FlushDelay time.Duration
	Now        func() time.Time
	Clock      *Clock // follows the versions on disk; default: a new one
	// returns why this disk takes no more records (it is almost full, or hangs), or nil; default:
	// always nil
	Room func() error
	Seal *seal.Key // encrypts all files; nil leaves them unencrypted
	FS   vfs.FS    // the file system, for tests; nil: the machine's
	Anew bool      // the previous store was lost: this one is Refilling until EndRefill
	Log  *slog.Logger

	// receives changes; default: none
	Watch Watcher
	// Synced receives how long a group of writes waited for stable storage; it must not block.
	Synced func(took time.Duration, writes int)
	// Writing is called when a group begins to wait for stable storage, and what it returns when
	// the wait has ended; they must not block.
	Writing func() (ended func())
	// Refused is called for each write that Room refused; it must not block.
	Refused func()
}

// Watcher receives the committer's changes. Its methods must not wait for a write.
type Watcher interface {
	// Watches reports whether it wants the changes of a space.
	Watches(Space) bool
	// Changed is called when changes can be read, and before the digests include them: a reader
	// that first takes a digest finds everything that it counts.
	Changed([]Changed)
	// Dropped is called when the records of cells were removed, and before their digests are.
	Dropped(map[CellID]bool)
	// Lost is called when all records were lost.
	Lost()
}

// Changed identifies a record that a group of writes changed.
type Changed struct {
	Key       Key
	Partition int
}

type nobody struct{}

func (nobody) Watches(Space) bool      { return false }
func (nobody) Changed([]Changed)       {}
func (nobody) Dropped(map[CellID]bool) {}
func (nobody) Lost()                   {}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (o Options) withDefaults() Options {
	def(&o.BucketWidth, time.Hour)
	def(&o.WriteQueue, 4096)
	def(&o.CacheBytes, 4<<20)
	def(&o.MemTableBytes, 4<<20)
	def(&o.FlushDelay, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	def(&o.Clock, NewClock(o.Now))
	if o.Room == nil {
		o.Room = func() error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Watch == nil {
		o.Watch = nobody{}
	}
	if o.Writing == nil {
		o.Writing = func() func() { return func() {} }
	}
	if o.Synced == nil {
		o.Synced = func(time.Duration, int) {}
	}
	if o.Refused == nil {
		o.Refused = func() {}
	}
	return o
}

// files is the file system of the store.
func (o Options) files() vfs.FS {
	if o.FS != nil {
		return o.FS
	}
	return diskfs.Private{FS: vfs.Default}
}

// sealed adds encryption to a file system if a seal is set.
func (o Options) sealed(files vfs.FS) vfs.FS {
	if o.Seal == nil {
		return files
	}
	return diskfs.Sealed{FS: files, Key: o.Seal}
}

// CheckSealed refuses a key for a store whose files are not encrypted. Otherwise the files would
// count as damaged, and the store as lost.
func CheckSealed(dir string, o Options) error {
	if o.Seal == nil {
		return nil
	}
	files := o.files()
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open ring store: %w", err)
	}
	const begin = "[Version]" // of Pebble's options, as text
	for _, name := range names {
		if !strings.HasPrefix(name, "OPTIONS-") {
			continue
		}
		f, err := files.Open(files.PathJoin(dir, name))
		if err != nil {
			return fmt.Errorf("open ring store: %w", err)
		}
		head := make([]byte, len(begin))
		n, err := f.ReadAt(head, 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("open ring store: %w", err)
		}
		if string(head[:n]) == begin {
			return fmt.Errorf("seal_key is set, but the ring store %s is not sealed; nothing "+
				"was changed. Move this master as "+
				"docs/security.md, \"Secrets at rest\", says", dir)
		}
	}
	return nil
}
