package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Space separates the kinds of records of a place. Package ringstore lists the numbers in use.
type Space uint8

// Bounds of a key, in bytes, and of the partitions of a ring.
const (
	MaxPlace      = 1024
	MaxName       = 4096
	MaxPartitions = 1 << 16
)

// Errors that callers can tell apart.
var (
	ErrTooLarge = errors.New("too large")
	ErrClosed   = errors.New("ring store is closed")
	ErrCorrupt  = errors.New("record on disk does not decode")
	// ErrAside fails reads while a damaged store is being replaced.
	ErrAside = errors.New("the ring store was damaged and is being replaced")
	// ErrExpired refuses a new record whose time is over.
	ErrExpired = errors.New("the record has expired already; compare the masters' clocks")
)

// Key names one record. All records of one place lie on the same owners.
type Key struct {
	Space Space
	Place string // a jid, a minion id: at most MaxPlace bytes of any value
	Name  string // within the place: at most MaxName bytes of any value
}

// Check refuses a key without a space or a place, and with ErrTooLarge one beyond the bounds.
func (k Key) Check() error {
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

// Time returns the writer's wall clock at the version, UTC.
func (v Version) Time() time.Time { return time.UnixMicro(int64(v.Clock >> 12)).UTC() }

// Record is one stored value.
type Record struct {
	Key
	Value   []byte
	Version Version
	Expires time.Time // zero: never; whole seconds, UTC

	Partition int   // of the ring, 0 to 65535
	Flags     uint8 // the Flag constants
}

// Flags of a record. They are on disk and in messages.
const (
	FlagFirst   uint8 = 1 // the lowest version wins
	FlagDeleted uint8 = 2 // a tombstone
	FlagExact   uint8 = 4 // the writer vouches that all writes of this key carry the same expiry
)

// Deleted reports whether the record is a tombstone.
func (r *Record) Deleted() bool { return r.Flags&FlagDeleted != 0 }

// Exact reports whether the expiry depends only on the key.
func (r *Record) Exact() bool { return r.Flags&FlagExact != 0 }

// Expired reports whether the record counts as removed at now. A tombstone counts until it is
// actually removed: only then are absent masters noted as lacking it, and until then a master that
// was away may return with the deleted record.
func (r *Record) Expired(now time.Time) bool { return !r.Deleted() && r.Over(now) }

// Over reports whether the time of a record or tombstone has ended.
func (r *Record) Over(now time.Time) bool { return !r.Expires.IsZero() && !now.Before(r.Expires) }

// Wins reports whether a is kept when a and b are stored under one key. It is a total order over
// flags and versions, so merging is commutative, associative and idempotent, and all owners end
// with the same record. An ordinary record or tombstone beats a first-wins record. Among first-wins
// records the lower version wins, otherwise the higher one. It is false for equal versions.
func Wins(aFlags uint8, a Version, bFlags uint8, b Version) bool {
	af, bf := aFlags&FlagFirst != 0, bFlags&FlagFirst != 0
	switch {
	case af != bf:
		return bf
	case af:
		return a.Less(b)
	}
	return b.Less(a)
}

// headerLen is the length of the header before the value on disk: flags, clock, node, expiry.
const headerLen = 1 + 8 + 8 + 8

type header struct {
	flags   uint8
	version Version
	expires int64 // seconds since 1970; 0: never
}

func (r *Record) header() header {
	return header{flags: r.Flags, version: r.Version, expires: UnixSeconds(r.Expires)}
}

// UnixSeconds returns a time as seconds since 1970, the zero time as 0.
func UnixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// SecondsTime is the inverse of UnixSeconds, in UTC.
func SecondsTime(s int64) time.Time {
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

// SumOf is what a record adds to the digests: equal on all owners that hold the same version.
func SumOf(place, name string, v Version) uint64 {
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

// Winners maps each key to the copy of its record that Wins.
type Winners map[Key]*Record

// Add adds a copy of a record if it wins.
func (w Winners) Add(r *Record) {
	if old := w[r.Key]; old == nil || Wins(r.Flags, r.Version, old.Flags, old.Version) {
		w[r.Key] = r
	}
}

// Collect returns a function that adds pages of records, with keysOnly without their values. It
// returns ErrTooLarge for more than limit bytes over all calls.
func (w Winners) Collect(limit int, keysOnly bool) func([]Record) error {
	size := 0
	return func(records []Record) error {
		for i := range records {
			if keysOnly {
				records[i].Value = nil
			}
			size += len(records[i].Value) + len(records[i].Name) + 64
			if size > limit {
				return fmt.Errorf("answer of more than %d bytes: %w", limit, ErrTooLarge)
			}
			w.Add(&records[i])
		}
		return nil
	}
}
