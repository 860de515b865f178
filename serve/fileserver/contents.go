package fileserver

import (
	"io/fs"
	"sync"
	"syscall"
	"time"
)

// Bounds of the contents that are kept.
const (
	maxKept     = 4 << 20  // bytes of all
	maxKeptFile = 64 << 10 // bytes of one file
)

// contents keeps small files as they were read, so that a piece of one costs a look at its marks.
// All minions ask for the same few at the same time.
type contents struct {
	mu    sync.RWMutex // guards all below
	files map[string]content
	bytes int
}

type content struct {
	marks marks
	data  []byte // never written to
}

// marks tell one version of a file from another. The change time can't be set, so it moves with
// every write.
type marks struct {
	dev, ino       uint64
	size           int64
	mtime, changed syscall.Timespec
}

// marksOf reads the marks; ok is false where the system has none, and for a change so new that
// another one could leave the same marks.
func marksOf(info fs.FileInfo) (m marks, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || time.Since(time.Unix(st.Ctim.Unix())) < settled {
		return marks{}, false
	}
	return marks{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, changed: st.Ctim}, true
}

func (c *contents) get(path string, m marks) ([]byte, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	kept, ok := c.files[path]
	return kept.data, ok && kept.marks == m
}

// size is how many bytes are kept.
func (c *contents) size() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.bytes
}

func (c *contents) put(path string, m marks, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(path)
	for other := range c.files { // any of them
		if c.bytes+len(data) <= maxKept {
			break
		}
		c.drop(other)
	}
	if c.files == nil {
		c.files = make(map[string]content)
	}
	c.files[path] = content{m, data}
	c.bytes += len(data)
}

// drop forgets a file; the caller holds mu.
func (c *contents) drop(path string) {
	c.bytes -= len(c.files[path].data)
	delete(c.files, path)
}
