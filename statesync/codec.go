package statesync

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt says that a manifest, record or journal does not decode.
var ErrCorrupt = errors.New("does not decode")

// encoder writes numbers and texts; equal values give equal bytes.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) sum(s Sum)     { e.b = append(e.b, s[:]...) }
func (e *encoder) text(s string) { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) bool(v bool) {
	if v {
		e.uint(1)
	} else {
		e.uint(0)
	}
}

// sealed appends the checksum of everything before it.
func (e *encoder) sealed() []byte {
	sum := sha256.Sum256(e.b)
	return append(e.b, sum[:]...)
}

// decoder reads what encoder wrote and accepts nothing else: one value has one encoding. After the
// first error all reads return zero values.
type decoder struct {
	b   []byte
	err error
}

// unseal checks and removes the checksum.
func unseal(b []byte) (*decoder, error) {
	n := len(b) - sha256.Size
	if n < 0 {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrCorrupt)
	}
	if sum := sha256.Sum256(b[:n]); !bytes.Equal(sum[:], b[n:]) {
		return nil, fmt.Errorf("sum differs: %w", ErrCorrupt)
	}
	return &decoder{b: b[:n]}, nil
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %w", what, ErrCorrupt)
	}
	d.b = nil
}

func (d *decoder) uint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit || n > 1 && v < 1<<(7*(n-1)) {
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int(limit int64) int64 { return int64(d.uint(uint64(limit))) }
func (d *decoder) bool() bool            { return d.uint(1) == 1 }

func (d *decoder) text(limit int) string {
	n := d.uint(uint64(limit))
	if n > uint64(len(d.b)) {
		d.fail("text")
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) sum() (s Sum) {
	if len(d.b) < len(s) {
		d.fail("sum")
		return s
	}
	d.b = d.b[copy(s[:], d.b):]
	return s
}

func (d *decoder) magic(want string) {
	if !bytes.HasPrefix(d.b, []byte(want)) {
		d.fail("beginning")
		return
	}
	d.b = d.b[len(want):]
}

// end returns the first error, or one if bytes are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail(fmt.Sprintf("%d bytes too many", len(d.b)))
	}
	return d.err
}
