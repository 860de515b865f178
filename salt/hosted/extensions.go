package hosted

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Extensions computes a digest of the files below extension_modules, so that masters see whether
// theirs differ. It is safe for concurrent use.
type Extensions struct {
	dir    string
	digest atomic.Value // string

	mu   sync.Mutex // held while reading the folder
	seen string     // names, sizes and times of the files in the digest
}

// NoExtensions is the digest of a folder without files.
const NoExtensions = "none"

// Bounds on the files that are read. Beyond them it uses only names and sizes, then nothing.
const (
	maxExtensions     = 10_000
	maxExtensionBytes = 64 << 20
	maxExtensionDepth = 16 // links may form circles
)

// lookEvery is the interval of checks for files that changed without notice.
const lookEvery = 30 * time.Second

// NewExtensions returns the Extensions of a folder, which need not exist. It does not read the
// folder yet.
func NewExtensions(dir string) *Extensions { return &Extensions{dir: dir} }

// Digest returns the last digest: 16 hexadecimal digits, NoExtensions, or "" before the first.
func (e *Extensions) Digest() string {
	s, _ := e.digest.Load().(string)
	return s
}

// Run reads the folder, and again at intervals, until ctx ends.
func (e *Extensions) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		e.Look()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Look computes the digest anew if a file was added, removed or changed.
func (e *Extensions) Look() {
	e.mu.Lock()
	defer e.mu.Unlock()
	var files []extension
	listExtensions(e.dir, "", 0, &files)
	seen := fmt.Sprint(files)
	if seen == e.seen && e.Digest() != "" {
		return
	}
	digest := NoExtensions
	if len(files) > 0 {
		sum, left := sha256.New(), int64(maxExtensionBytes)
		for _, f := range files {
			fmt.Fprintf(sum, "%d %s %s\n", len(f.path), f.path,
				contentOf(filepath.Join(e.dir, f.path), f.size, &left))
		}
		digest = hex.EncodeToString(sum.Sum(nil)[:8])
	}
	e.seen = seen
	e.digest.Store(digest)
}

// extension is a file below extension_modules.
type extension struct {
	path          string // relative to it
	size, changed int64
}

// listExtensions adds the files below a folder, as Salt's loader finds them: through links, without
// compiled Python files.
func listExtensions(root, below string, depth int, out *[]extension) {
	entries, err := os.ReadDir(filepath.Join(root, below)) // sorted
	if err != nil || depth > maxExtensionDepth {
		return
	}
	for _, d := range entries {
		path := filepath.Join(below, d.Name())
		info, err := os.Stat(filepath.Join(root, path))
		switch {
		case len(*out) >= maxExtensions:
			return
		case err != nil, d.Name() == "__pycache__", strings.HasPrefix(d.Name(), "."):
		case info.IsDir():
			listExtensions(root, path, depth+1, out)
		case info.Mode().IsRegular():
			*out = append(*out, extension{path, info.Size(), info.ModTime().UnixNano()})
		}
	}
}

// contentOf returns the hash of a file, or its size if too much was read already.
func contentOf(path string, size int64, left *int64) string {
	if *left -= size; *left < 0 {
		return fmt.Sprint(size)
	}
	f, err := os.Open(path)
	if err != nil {
		return "unreadable"
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, size)); err != nil {
		return "unreadable"
	}
	return hex.EncodeToString(sum.Sum(nil))
}
