package value

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"
)

// MaxDepth is how deep maps and arrays may nest, in both directions. Salt's own packer stops near
// 511.
const MaxDepth = 512

const (
	extTime  = 78
	ExtConst = 79
)

// ErrUnpackable is returned for a Go value that has no form on the wire.
var ErrUnpackable = errors.New("value can't be packed")

// Pack encodes v as Salt does: old specification, text and bytes both in the raw family, integers
// in the shortest form. It takes nil, bool, all integers, *big.Int, floats, string, []byte, []any,
// Set, []string, []Map, []Raw, Map, RawMap, Raw, map[string]any and map[string]string (keys
// sorted), Time, time.Time and Const. For any other value, or nesting deeper than MaxDepth, it
// returns ErrUnpackable.
func Pack(v any) ([]byte, error) { return AppendPack(nil, v) }

// AppendPack appends the encoding of v to dst. On an error it returns nil.
func AppendPack(dst []byte, v any) ([]byte, error) {
	p := packer{b: dst}
	if err := p.value(v, 0); err != nil {
		return nil, err
	}
	return p.b, nil
}

// PackNew encodes v in the new specification, where text is str and bytes are bin. Salt signs
// messages in this form (minion_sign_messages) and writes files and local sockets with it; the
// ZeroMQ wire never carries it.
func PackNew(v any) ([]byte, error) {
	p := packer{fresh: true}
	if err := p.value(v, 0); err != nil {
		return nil, err
	}
	return p.b, nil
}

type packer struct {
	b     []byte
	fresh bool // new specification
}

func (p *packer) value(v any, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("pack value nested deeper than %d: %w", MaxDepth, ErrUnpackable)
	}
	switch v := v.(type) {
	case nil:
		p.b = append(p.b, 0xc0)
	case bool:
		if v {
			p.b = append(p.b, 0xc3)
		} else {
			p.b = append(p.b, 0xc2)
		}
	case int:
		p.b = appendInt(p.b, int64(v))
	case int64:
		p.b = appendInt(p.b, v)
	case uint64:
		p.b = appendUint(p.b, v)
	case string:
		return p.text(v)
	case []byte:
		return p.bytes(v)
	case Raw:
		if len(v) == 0 {
			v = Raw{0xc0}
		}
		p.b = append(p.b, v...)
	case Map:
		if err := p.mapHead(len(v)); err != nil {
			return err
		}
		for i := range v {
			if err := p.key(v[i].Key, depth+1); err != nil {
				return err
			}
			if err := p.value(v[i].Value, depth+1); err != nil {
				return err
			}
		}
	case RawMap:
		return p.rawMap(v)
	case []any:
		return packArray(p, v, depth)
	case Set:
		return packArray(p, v, depth)
	case []string:
		return packArray(p, v, depth)
	case []Map:
		return packArray(p, v, depth)
	case []Raw:
		return packArray(p, v, depth)
	case map[string]any:
		return packSorted(p, v, depth)
	case map[string]string:
		return packSorted(p, v, depth)
	case float64:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcb), math.Float64bits(v))
	case Time:
		return p.time(v.Time)
	case time.Time:
		return p.time(v)
	case Const:
		return p.constant(v, depth)
	default:
		return p.rare(v)
	}
	return nil
}

// rare packs the rare types of numbers.
func (p *packer) rare(v any) error {
	switch v := v.(type) {
	case int8:
		p.b = appendInt(p.b, int64(v))
	case int16:
		p.b = appendInt(p.b, int64(v))
	case int32:
		p.b = appendInt(p.b, int64(v))
	case uint:
		p.b = appendUint(p.b, uint64(v))
	case uint8:
		p.b = appendUint(p.b, uint64(v))
	case uint16:
		p.b = appendUint(p.b, uint64(v))
	case uint32:
		p.b = appendUint(p.b, uint64(v))
	case float32:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcb), math.Float64bits(float64(v)))
	case *big.Int:
		switch {
		case v == nil:
			p.b = append(p.b, 0xc0)
		case v.IsInt64():
			p.b = appendInt(p.b, v.Int64())
		case v.IsUint64():
			p.b = appendUint(p.b, v.Uint64())
		default:
			return p.text(v.String())
		}
	default:
		return fmt.Errorf("pack %T: %w", v, ErrUnpackable)
	}
	return nil
}

// key packs a map key, which Python must be able to hash.
func (p *packer) key(k any, depth int) error {
	switch k := k.(type) {
	case string:
		return p.text(k)
	case Map, RawMap, Set, []any, []string, []Map, []Raw, map[string]any, map[string]string:
		return fmt.Errorf("pack map key of type %T: %w", k, ErrUnpackable)
	}
	return p.value(k, depth)
}

func (p *packer) rawMap(m RawMap) error {
	if err := p.mapHead(len(m)); err != nil {
		return err
	}
	for i := range m {
		if m[i].other {
			p.b = append(p.b, m[i].Key...)
		} else if err := p.text(m[i].Key); err != nil {
			return err
		}
		if len(m[i].Value) == 0 {
			p.b = append(p.b, 0xc0)
			continue
		}
		p.b = append(p.b, m[i].Value...)
	}
	return nil
}

func (p *packer) time(t time.Time) error {
	if y := t.Year(); y < 1 || y > 9999 {
		return fmt.Errorf("pack time of year %d: %w", y, ErrUnpackable)
	}
	p.b = append(p.b, 0xc7, byte(len(timeLayout)), extTime)
	p.b = t.AppendFormat(p.b, timeLayout)
	return nil
}

// constant packs a Const; its payload is always in the new specification.
func (p *packer) constant(c Const, depth int) error {
	in := packer{fresh: true}
	in.b = append(in.b, 0x92)
	if err := in.text(c.Name); err != nil {
		return err
	}
	if err := in.value(c.Value, depth+2); err != nil {
		return err
	}
	n := len(in.b)
	switch {
	case n == 4 || n == 8 || n == 16: // 1 and 2 are impossible: array head, name head, value
		p.b = append(p.b, map[int]byte{4: 0xd6, 8: 0xd7, 16: 0xd8}[n], ExtConst)
	case n < 1<<8:
		p.b = append(p.b, 0xc7, byte(n), ExtConst)
	case n < 1<<16:
		p.b = append(binary.BigEndian.AppendUint16(append(p.b, 0xc8), uint16(n)), ExtConst)
	case uint64(n) < 1<<32:
		p.b = append(binary.BigEndian.AppendUint32(append(p.b, 0xc9), uint32(n)), ExtConst)
	default:
		return tooLong(n)
	}
	p.b = append(p.b, in.b...)
	return nil
}

func (p *packer) text(s string) error {
	var err error
	if p.fresh && len(s) >= 32 && len(s) < 256 {
		p.b = append(p.b, 0xd9, byte(len(s)))
	} else if p.b, err = AppendTextHead(p.b, len(s)); err != nil {
		return err
	}
	p.b = append(p.b, s...)
	return nil
}

func (p *packer) bytes(s []byte) error {
	var err error
	switch n := len(s); {
	case !p.fresh:
		p.b, err = AppendTextHead(p.b, n)
	case n < 1<<8:
		p.b = append(p.b, 0xc4, byte(n))
	case n < 1<<16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, 0xc5), uint16(n))
	case uint64(n) < 1<<32:
		p.b = binary.BigEndian.AppendUint32(append(p.b, 0xc6), uint32(n))
	default:
		err = tooLong(n)
	}
	if err != nil {
		return err
	}
	p.b = append(p.b, s...)
	return nil
}

func packArray[T any](p *packer, vs []T, depth int) error {
	switch n := len(vs); {
	case n < 16:
		p.b = append(p.b, 0x90|byte(n))
	case n < 1<<16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, 0xdc), uint16(n))
	case uint64(n) < 1<<32:
		p.b = binary.BigEndian.AppendUint32(append(p.b, 0xdd), uint32(n))
	default:
		return tooLong(n)
	}
	for i := range vs {
		if err := p.value(vs[i], depth+1); err != nil {
			return err
		}
	}
	return nil
}

func packSorted[T any](p *packer, m map[string]T, depth int) error {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if err := p.mapHead(len(keys)); err != nil {
		return err
	}
	for _, k := range keys {
		if err := p.text(k); err != nil {
			return err
		}
		if err := p.value(m[k], depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) mapHead(n int) error {
	switch {
	case n < 16:
		p.b = append(p.b, 0x80|byte(n))
	case n < 1<<16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, 0xde), uint16(n))
	case uint64(n) < 1<<32:
		p.b = binary.BigEndian.AppendUint32(append(p.b, 0xdf), uint32(n))
	default:
		return tooLong(n)
	}
	return nil
}

// AppendTextHead appends the head of a text or byte string of n bytes in the old specification.
func AppendTextHead(dst []byte, n int) ([]byte, error) {
	switch {
	case n < 32:
		return append(dst, 0xa0|byte(n)), nil
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xda), uint16(n)), nil
	case uint64(n) < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n)), nil
	}
	return nil, tooLong(n)
}

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 1<<7:
		return append(dst, byte(v))
	case v < 1<<8:
		return append(dst, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
}

func appendInt(dst []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(dst, uint64(v))
	case v >= -32:
		return append(dst, byte(v))
	case v >= math.MinInt8:
		return append(dst, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(dst, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(dst, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
}

func tooLong(n int) error { return fmt.Errorf("pack value of length %d: %w", n, ErrUnpackable) }
