package disk

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Keys on disk, first byte:
//
//	d  bucket(8) space(1) partition(2) len(place)(2) place name   a record
//	h  len(node)(2) node space(1) partition(2) len(place)(2) place name   a copy owed to node
//	o  node   since when something is owed to node: kept by releases before 0.2, not read
//	t  bucket(8) record key   a tombstone to be removed when the bucket ends
//	c  bucket(8) space(1) partition(2)   the digest of the records in a cell
//	m  name   what the store knows of itself
const (
	kindRecord = 'd'
	kindHint   = 'h'
	kindTomb   = 't'
	kindMeta   = 'm'
	kindTally  = 'c'
)

// never is the bucket of records that don't expire, and of tombstones.
const never = uint64(math.MaxUint64)

// bucketEnd returns the end, in seconds since 1970, of the time bucket for a record with this
// expiry. A bucket is dropped as a whole after its end, so the end is never before the expiry.
func bucketEnd(expires int64, width time.Duration) uint64 {
	if expires <= 0 {
		return never
	}
	w := max(int64(width/time.Second), 1)
	return uint64((expires + w - 1) / w * w)
}

func appendTail(dst []byte, space Space, partition int, place, name string) []byte {
	dst = append(dst, byte(space))
	dst = binary.BigEndian.AppendUint16(dst, uint16(partition))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(place)))
	dst = append(dst, place...)
	return append(dst, name...)
}

func appendCellKey(dst []byte, bucket uint64, space Space, partition int) []byte {
	dst = append(dst, kindRecord)
	dst = binary.BigEndian.AppendUint64(dst, bucket)
	dst = append(dst, byte(space))
	return binary.BigEndian.AppendUint16(dst, uint16(partition))
}

func appendRecordKey(dst []byte, bucket uint64, k Key, partition int) []byte {
	dst = append(dst, kindRecord)
	dst = binary.BigEndian.AppendUint64(dst, bucket)
	return appendTail(dst, k.Space, partition, k.Place, k.Name)
}

func bucketKey(bucket uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kindRecord}, bucket)
}

// parseTail reads what appendTail wrote.
func parseTail(b []byte) (k Key, partition int, err error) {
	if len(b) < 5 {
		return Key{}, 0, fmt.Errorf("key tail of %d bytes: %w", len(b), ErrCorrupt)
	}
	k.Space = Space(b[0])
	partition = int(binary.BigEndian.Uint16(b[1:]))
	n := int(binary.BigEndian.Uint16(b[3:]))
	if len(b) < 5+n {
		return Key{}, 0, fmt.Errorf("key tail of %d bytes with a place of %d: %w", len(b), n,
			ErrCorrupt)
	}
	k.Place = string(b[5 : 5+n])
	k.Name = string(b[5+n:])
	return k, partition, nil
}

func parseRecordKey(b []byte) (k Key, partition int, bucket uint64, err error) {
	if len(b) < 9 || b[0] != kindRecord {
		return Key{}, 0, 0, fmt.Errorf("record key of %d bytes: %w", len(b), ErrCorrupt)
	}
	bucket = binary.BigEndian.Uint64(b[1:])
	k, partition, err = parseTail(b[9:])
	return k, partition, bucket, err
}

func hintPrefix(node string) []byte {
	b := append(make([]byte, 0, 3+len(node)), kindHint)
	b = binary.BigEndian.AppendUint16(b, uint16(len(node)))
	return append(b, node...)
}

func hintKey(node string, k Key, partition int) []byte {
	return appendTail(hintPrefix(node), k.Space, partition, k.Place, k.Name)
}

func parseHintKey(b []byte) (node string, k Key, partition int, err error) {
	if len(b) < 3 || b[0] != kindHint {
		return "", Key{}, 0, fmt.Errorf("hint key of %d bytes: %w", len(b), ErrCorrupt)
	}
	n := int(binary.BigEndian.Uint16(b[1:]))
	if len(b) < 3+n {
		return "", Key{}, 0, fmt.Errorf("hint key of %d bytes: %w", len(b), ErrCorrupt)
	}
	k, partition, err = parseTail(b[3+n:])
	return string(b[3 : 3+n]), k, partition, err
}

func tombKey(bucket uint64, recordKey []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{kindTomb}, bucket)
	return append(b, recordKey...)
}

func noteKey(name string) []byte { return append([]byte{kindMeta}, name...) }

// after returns the first key after all keys that begin with prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
