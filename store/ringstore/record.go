package ringstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Space separates the kinds of records of a place. Numbers are on disk: append only.
type Space uint8

// The spaces in use. What is in them is known to their packages only.
const (
	SpaceJobs Space = 1 // package jobcache: minion lists and returns of a job
	// package jobcache: one small record per job, to list jobs without their returns
	SpaceJobHeads Space = 2
	SpaceMinions  Space = 3 // package miniondata
	SpacePushed   Space = 4 // package pushed
	SpaceBanks    Space = 5 // package banks
)

// Bounds of a key, in bytes.
const (
	MaxPlace = 1024
	MaxName  = 4096
)

// Errors that callers can tell apart.
var (
	ErrTooLarge    = errors.New("too large")
	ErrUnavailable = errors.New("no owner of the record is reachable; see salt-run cluster.members")
	ErrNotReady    = errors.New("this master does not know the ring yet; it asks the other masters")
	ErrClosed      = errors.New("ring store is closed")
	ErrContended   = errors.New("other writers were faster every time")
	ErrCorrupt     = errors.New("record on disk does not decode")
)

// Key names one record. All records of one place lie on the same owners.
type Key struct {
	Space Space
	Place string // a jid, a minion id: at most MaxPlace bytes, any
	Name  string // within the place: at most MaxName bytes, any
}

func (k Key) check() error {
	switch {
	case k.Space == 0:
		return errors.New("record without a space")
	case len(k.Place) == 0:
		return errors.New("record without a place")
	case len(k.Place) > MaxPlace:
		return fmt.Errorf("place of %d bytes, at most %d: %w", len(k.Place), MaxPlace, ErrTooLarge)
	case len(k.Name) > MaxName:
		return fmt.Errorf("name of %d bytes, at most %d: %w", len(k.Name), MaxName, ErrTooLarge)
	}
	return nil
}

// Version orders the writes of a record: by the writer's hybrid logical clock, then by the writer's
// incarnation.
type Version struct {
	Clock uint64 // microseconds since 1970 << 12 | counter
	Node  uint64 // incarnation of the master that took the write
}

// Less reports whether v was written before w.
func (v Version) Less(w Version) bool {
	return v.Clock < w.Clock || v.Clock == w.Clock && v.Node < w.Node
}

// Time returns the writer's wall clock of the version, UTC.
func (v Version) Time() time.Time { return time.UnixMicro(int64(v.Clock >> 12)).UTC() }

// Record is one stored value.
type Record struct {
	Key
	Value   []byte
	Version Version
	Expires time.Time // zero: never; whole seconds, UTC

	partition int
	flags     uint8
}

const (
	flagFirst   uint8 = 1 // the lowest version wins
	flagDeleted uint8 = 2 // a tombstone
	flagExact   uint8 = 4 // the writer vouches that all writes of this key carry the same expiry
)

func (r *Record) deleted() bool { return r.flags&flagDeleted != 0 }
func (r *Record) exact() bool   { return r.flags&flagExact != 0 }

// expired reports whether the record counts as gone at now. A tombstone counts until it is removed:
// until then nobody is noted to lack it, so a master that was away may come back with what was
// deleted.
func (r *Record) expired(now time.Time) bool { return !r.deleted() && r.over(now) }

// over reports whether the time of a record or tombstone has ended.
func (r *Record) over(now time.Time) bool { return !r.Expires.IsZero() && !now.Before(r.Expires) }

// wins reports whether a is kept when a and b meet on one key. It is a total order over flags and
// versions, so merging is commutative, associative and idempotent, and all owners end with the same
// record: an ordinary record or tombstone beats a first-wins record; among first-wins the lower
// version, else the higher one wins. False for equal versions.
func wins(aFlags uint8, a Version, bFlags uint8, b Version) bool {
	af, bf := aFlags&flagFirst != 0, bFlags&flagFirst != 0
	switch {
	case af != bf:
		return bf
	case af:
		return a.Less(b)
	}
	return b.Less(a)
}

// headerLen is the length of what precedes the value on disk: flags, clock, node, expiry.
const headerLen = 1 + 8 + 8 + 8

type header struct {
	flags   uint8
	version Version
	expires int64 // seconds since 1970; 0: never
}

func (r *Record) header() header {
	return header{flags: r.flags, version: r.Version, expires: unixSeconds(r.Expires)}
}

func unixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func secondsTime(s int64) time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}

func (h header) append(dst []byte) []byte {
	dst = append(dst, h.flags)
	dst = binary.BigEndian.AppendUint64(dst, h.version.Clock)
	dst = binary.BigEndian.AppendUint64(dst, h.version.Node)
	return binary.BigEndian.AppendUint64(dst, uint64(h.expires))
}

func parseHeader(b []byte) (header, error) {
	if len(b) < headerLen {
		return header{}, fmt.Errorf("value of %d bytes: %w", len(b), ErrCorrupt)
	}
	return header{
		flags: b[0],
		version: Version{Clock: binary.BigEndian.Uint64(b[1:]),
			Node: binary.BigEndian.Uint64(b[9:])},
		expires: int64(binary.BigEndian.Uint64(b[17:])),
	}, nil
}

// sum is what a record adds to the digests: equal on all owners that hold the same version.
func sum(place, name string, v Version) uint64 {
	var d xxhash.Digest
	d.Reset()
	var b [20]byte
	binary.BigEndian.PutUint64(b[:], v.Clock)
	binary.BigEndian.PutUint64(b[8:], v.Node)
	binary.BigEndian.PutUint32(b[16:], uint32(len(place)))
	d.Write(b[:])
	d.WriteString(place)
	d.WriteString(name)
	return d.Sum64()
}

// incarnation turns a node name ("id/hex16") into the number that versions carry.
func incarnation(node string) uint64 {
	if _, tail, ok := strings.Cut(node, "/"); ok && len(tail) == 16 {
		if n, err := strconv.ParseUint(tail, 16, 64); err == nil {
			return n
		}
	}
	return xxhash.Sum64String(node)
}
