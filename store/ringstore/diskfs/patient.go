package diskfs

import (
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Patient is a file system whose writes wait while the disk is full, and continue once there is
// space. Pebble can't go on after a refused write: it would end the process. Until the write
// succeeds it is not acknowledged.
//
// A failed sync is not retried: the kernel may have dropped the data that it could not write.
type Patient struct {
	vfs.FS
	wait *waiter
}

// waiter logs waiting, at most once in an interval, whichever file waits.
type waiter struct {
	log   *slog.Logger
	retry time.Duration

	mu   sync.Mutex // guards told
	told time.Time
}

const (
	retryFull = 100 * time.Millisecond // between attempts to write to a full disk
	tellFull  = 10 * time.Second       // between lines in the log about it
)

// NewPatient makes writes to a file system wait; log gets a line when they do.
func NewPatient(fs vfs.FS, log *slog.Logger) Patient {
	return Patient{fs, &waiter{log: log, retry: retryFull}}
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) ||
		errors.Is(err, syscall.EDQUOT)
}

// out calls f until the disk is no longer full.
func (w *waiter) out(name string, f func() error) error {
	for {
		err := f()
		if !isFull(err) {
			return err
		}
		w.tell(name, err)
		time.Sleep(w.retry)
	}
}

func (w *waiter) tell(name string, err error) {
	now := time.Now()
	w.mu.Lock()
	quiet := now.Sub(w.told) < tellFull
	if !quiet {
		w.told = now
	}
	w.mu.Unlock()
	if !quiet {
		w.log.Error("the disk is full; writes wait until there is space again", "path", name, "err", err)
	}
}

// open waits for the file to open, and makes its writes wait.
func (p Patient) open(name string, f func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	err := p.wait.out(name, func() (err error) {
		file, err = f()
		return err
	})
	if err != nil {
		return nil, err
	}
	return patientFile{file, p.wait, name}, nil
}

// Create implements vfs.FS.
func (p Patient) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return p.open(name, func() (vfs.File, error) { return p.FS.Create(name, category) })
}

// OpenReadWrite implements vfs.FS.
func (p Patient) OpenReadWrite(name string, category vfs.DiskWriteCategory,
	opts ...vfs.OpenOption) (vfs.File, error) {
	return p.open(name, func() (vfs.File, error) {
		return p.FS.OpenReadWrite(name, category,
			opts...)
	})
}

// ReuseForWrite implements vfs.FS.
func (p Patient) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return p.open(to, func() (vfs.File, error) { return p.FS.ReuseForWrite(from, to, category) })
}

// Link implements vfs.FS.
func (p Patient) Link(from, to string) error {
	return p.wait.out(to, func() error { return p.FS.Link(from, to) })
}

// Rename implements vfs.FS.
func (p Patient) Rename(from, to string) error {
	return p.wait.out(to, func() error { return p.FS.Rename(from, to) })
}

type patientFile struct {
	vfs.File
	wait *waiter
	name string
}

// Write implements vfs.File. If a part was written, it retries only the rest.
func (f patientFile) Write(b []byte) (n int, err error) {
	err = f.wait.out(f.name, func() error {
		m, err := f.File.Write(b[n:])
		n += m
		return err
	})
	return n, err
}

// WriteAt implements vfs.File.
func (f patientFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.wait.out(f.name, func() error {
		m, err := f.File.WriteAt(b[n:], at+int64(n))
		n += m
		return err
	})
	return n, err
}

// Preallocate implements vfs.File. It only saves time: without space the writes themselves wait.
func (f patientFile) Preallocate(at, length int64) error {
	if err := f.File.Preallocate(at, length); !isFull(err) {
		return err
	}
	return nil
}
