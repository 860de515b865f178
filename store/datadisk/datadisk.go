// Package datadisk watches the disk of the master's data: a reserve of its space and of its inodes
// stays free, and writes to it end. It also watches whether the folders answer from which a master
// serves.
//
// Lives here: the size of the reserve, whether it is free now, how long the writes under way have
// taken, the errors for both, and how long folders have not answered. Does not: refuse anything
// (the writers do), free anything.
package datadisk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// ErrUnusable means that the disk takes no more data now. Errors that wrap it are *LowError and
// *HangError.
var ErrUnusable = errors.New("disk")

// LowError says how much of the file system is free, how much should be, and what does not fit.
type LowError struct {
	Dir        string
	Free, Keep uint64 // bytes; inodes if Inodes is set
	More       uint64 // bytes that were to be written; 0: less than Keep is free
	Inodes     bool
}

func (e *LowError) Error() string {
	if e.Inodes {
		return fmt.Sprintf("disk: %d inodes are free at %s, fewer than the reserve of %d; remove files there (df -i counts inodes)",
			e.Free, e.Dir, e.Keep)
	}
	if e.More > 0 {
		return fmt.Sprintf("disk: %s do not fit at %s: %s are free, and the reserve is %s (option disk_reserve); free some space there",
			bytes(e.More), e.Dir, bytes(e.Free), bytes(e.Keep))
	}
	return fmt.Sprintf("disk: %s are free at %s, less than the reserve of %s (option disk_reserve); free some space there",
		bytes(e.Free), e.Dir, bytes(e.Keep))
}

// Is makes errors.Is find ErrUnusable.
func (e *LowError) Is(target error) bool { return target == ErrUnusable }

// Size is how much is to stay free.
type Size struct {
	Percent float64 // of the file system; 0: only Bytes counts
	Bytes   uint64  // upper bound; with Percent 0 the size itself
}

// Default is 5 % of the file system, at most 1 GiB.
var Default = Size{Percent: 5, Bytes: 1 << 30}

// ParseSize reads the option disk_reserve: a number of bytes, optionally with K, M, G or T after
// it, or a percentage. An empty text means Default, 0 no reserve.
func ParseSize(text string) (Size, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Default, nil
	}
	wrong := fmt.Errorf("is %q; bytes (1073741824, 512M, 1G) or a part of the disk (5%%) is needed",
		text)
	if part, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(n >= 0 && n <= 90) {
			return Size{}, wrong
		}
		if n == 0 {
			return Size{}, nil
		}
		return Size{Percent: n, Bytes: math.MaxUint64}, nil
	}
	shift := 0
	if at := strings.IndexByte("KMGT", text[len(text)-1]&^0x20); at >= 0 {
		shift, text = 10*(at+1), text[:len(text)-1]
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil || n > math.MaxUint64>>1>>shift {
		return Size{}, wrong
	}
	return Size{Bytes: n << shift}, nil
}

// of returns the reserve for a file system of total bytes.
func (s Size) of(total uint64) uint64 {
	if s.Percent == 0 {
		return s.Bytes
	}
	return min(uint64(float64(total)*s.Percent/100), s.Bytes)
}

// inodes returns the reserve for a file system of so many inodes: 5 %, at most 1,000. Without a
// reserve of bytes there is none of inodes.
func (s Size) inodes(total uint64) uint64 {
	if s == (Size{}) {
		return 0
	}
	return min(total/20, 1000)
}

// Check returns a *LowError if the file system of dir has less than s free for this process.
func (s Size) Check(dir string) error {
	return s.fits(dir, 0)
}

// fits returns a *LowError if the file system of dir would have less than s free after more bytes.
func (s Size) fits(dir string, more uint64) error {
	r, err := roomAt(dir)
	if err != nil {
		return err
	}
	if e := s.lack(dir, r, more); e != nil {
		return e
	}
	return nil
}

// lack is the error of fits, nil if there is enough.
func (s Size) lack(dir string, r room, more uint64) *LowError {
	if keep := s.of(r.bytes); r.freeBytes < keep || r.freeBytes-keep < more {
		return &LowError{Dir: dir, Free: r.freeBytes, Keep: keep, More: more}
	}
	if keep := s.inodes(r.inodes); r.freeInodes < keep {
		return &LowError{Dir: dir, Free: r.freeInodes, Keep: keep, Inodes: true}
	}
	return nil
}

// room is the size of a file system and what this process may use of it. File systems that make
// inodes when they need them, such as btrfs, have no number of them: 0.
type room struct{ freeBytes, bytes, freeInodes, inodes uint64 }

func roomAt(dir string) (room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return room{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	size := uint64(st.Bsize)
	return room{st.Bavail * size, st.Blocks * size, st.Ffree, st.Files}, nil
}

// Disk watches the file system of one folder. It is safe for concurrent use.
type Disk struct {
	size Size
	dir  string
	log  *slog.Logger

	low     atomic.Pointer[LowError]
	hang    atomic.Pointer[HangError]
	seen    atomic.Pointer[room] // by the last look; nil: none succeeded yet
	refused *prometheus.CounterVec

	mu       sync.Mutex // guards underWay
	underWay map[*time.Time]struct{}
}

// lookEvery is how often the disk is checked. What a master writes in that time is small
// against any sensible reserve.
const lookEvery = 500 * time.Millisecond

// New checks once; Run repeats the check. A nil reg registers no metrics.
func New(dir string, size Size, log *slog.Logger, reg prometheus.Registerer) *Disk {
	r := &Disk{size: size, dir: dir, log: log.With("component", "datadisk"),
		underWay: map[*time.Time]struct{}{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_disk_refused_total",
			Help: "Work of operators that was refused because the disk is almost full or hangs, by kind.",
		}, []string{"what"})}
	r.look()
	if reg != nil {
		gauge := func(name, help string, f func() float64) prometheus.Collector {
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
		}
		ofRoom := func(name, help string, f func(room) uint64) prometheus.Collector {
			return gauge(name, help, func() float64 {
				if seen := r.seen.Load(); seen != nil {
					return float64(f(*seen))
				}
				return 0
			})
		}
		reg.MustRegister(
			r.refused,
			ofRoom("clustermaster_disk_free_bytes",
				"Free space on the file system of the master's data.",
				func(seen room) uint64 { return seen.freeBytes }),
			ofRoom("clustermaster_disk_reserve_bytes",
				"Free space below which this master takes no more data.",
				func(seen room) uint64 { return size.of(seen.bytes) }),
			ofRoom("clustermaster_disk_free_inodes",
				"Free inodes on the file system of the master's data; 0 if it has no fixed number of them.",
				func(seen room) uint64 { return seen.freeInodes }),
			ofRoom("clustermaster_disk_reserve_inodes",
				"Free inodes below which this master takes no more data; 0: any number will do.",
				func(seen room) uint64 { return size.inodes(seen.inodes) }),
			gauge("clustermaster_disk_low", "1 while less than the reserve is free, of space or of inodes.",
				func() float64 {
					if r.low.Load() != nil {
						return 1
					}
					return 0
				}),
			gauge("clustermaster_disk_write_age_seconds",
				"How long the oldest write under way has taken; 0: none is under way.",
				func() float64 { return r.oldest().Seconds() }),
		)
	}
	return r
}

// Low returns a *LowError while less than the reserve is free, else nil. It returns the result of
// the last check.
func (r *Disk) Low() error {
	if e := r.low.Load(); e != nil {
		return e
	}
	return nil
}

// Usable is Low; if that is nil, it returns a *HangError while a write hangs.
func (r *Disk) Usable() error {
	if e := r.Low(); e != nil {
		return e
	}
	if e := r.hang.Load(); e != nil {
		return e
	}
	return nil
}

// Room returns a *LowError if less than the reserve would be free after n more bytes.
func (r *Disk) Room(n int64) error { return r.size.fits(r.dir, uint64(max(0, n))) }

// Refuse is Usable for an operator's work, named by what, and counts refusals. Unless dir is empty,
// the folder's file system must have its reserve as well.
func (r *Disk) Refuse(what, dir string) error {
	err := r.Usable()
	if err == nil && dir != "" {
		err = r.size.Check(dir)
	}
	if errors.Is(err, ErrUnusable) {
		r.refused.WithLabelValues(what).Inc()
	}
	return err
}

// Run checks the disk until ctx ends. Writes have a loop of their own, because a look at the space
// of a disk that hangs may not end.
func (r *Disk) Run(ctx context.Context) error {
	var writes sync.WaitGroup
	writes.Go(func() { repeat(ctx, r.lookAtWrites) })
	repeat(ctx, r.look)
	writes.Wait()
	return nil
}

// repeat calls look every lookEvery until ctx ends.
func repeat(ctx context.Context, look func()) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			look()
		case <-ctx.Done():
			return
		}
	}
}

func (r *Disk) look() {
	seen, err := roomAt(r.dir)
	if err != nil {
		r.log.Debug("free space unknown", "path", r.dir, "err", err)
		return
	}
	r.seen.Store(&seen)
	low := r.size.lack(r.dir, seen, 0)
	switch was := r.low.Swap(low); {
	case low != nil && was == nil:
		r.log.Error("the disk is almost full: this master takes no returns, pushed files, synced roots or backups, and is not ready, "+
			"until space is freed; keys and members can still be changed", "path", r.dir, "err", low)
	case low == nil && was != nil:
		r.log.Info("the disk has its reserve again: this master accepts everything", "path", r.dir,
			"free", bytes(seen.freeBytes), "free_inodes", seen.freeInodes)
	}
}

// bytes formats a size for people.
func bytes(n uint64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift {
			return strconv.FormatFloat(float64(n)/float64(uint64(1)<<u.shift), 'f', 1, 64) +
				" " + u.name
		}
	}
	return strconv.FormatUint(n, 10) + " bytes"
}
