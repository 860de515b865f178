// Package valuetest holds messages that are expensive to decode, and measures the memory of
// decoding, for tests.
package valuetest

import (
	"bytes"
	"math"
	"runtime"
	"slices"
	"testing"

	"clustermaster/value"
)

// allocated returns roughly the bytes that fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Bounded fails if fn allocates more than a constant times the input's length. The slack is for
// other goroutines.
func Bounded(t *testing.T, in []byte, fn func()) {
	t.Helper()
	if got, limit := allocated(fn), uint64(1<<20+100*len(in)); got > limit {
		t.Errorf("%d bytes of input allocate %d", len(in), got)
	}
}

// slack is what other goroutines of the test may allocate in that time.
const slack = 16 << 10

// Within fails if fn allocates more than limit in every attempt.
func Within(t *testing.T, limit int64, fn func()) {
	t.Helper()
	var got uint64
	for range 5 {
		if got = allocated(fn); got <= uint64(limit+slack) {
			return
		}
	}
	t.Errorf("%d bytes were allocated, more than %d", got, limit)
}

// Dense returns messages that take much more memory than their length if decoded carelessly; each
// is about n bytes long.
func Dense(n int) map[string][]byte {
	head := func(code byte, n int) []byte {
		return []byte{code, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
	constant := func(inside []byte) []byte {
		b := append([]byte{0x92, 0xa1, 'x'}, inside...)
		return append(append(head(0xc9, len(b)), value.ExtConst), b...)
	}
	claims := func(code byte, size, levels int) (b []byte) {
		for range levels {
			b = append(b, head(code, max(0, n-len(b)-5)/size)...)
		}
		return b
	}
	fill := func(b []byte, with ...byte) []byte {
		return append(b, bytes.Repeat(with, max(0, n-len(b))/len(with))...)
	}
	// Each array claims all remaining bytes of its constant; the next constant is within it.
	var heads [][]byte
	left := n
	for range value.MaxDepth / 4 {
		heads = append(heads, head(0xdd, left), []byte{0x92, 0xa1, 'x'},
			append(head(0xc9, left+8), value.ExtConst))
		left += 14
	}
	slices.Reverse(heads)
	nested := append(bytes.Join(heads, nil), bytes.Repeat([]byte{0xc0}, n)...)
	list := func(code byte, element ...byte) []byte { // well-formed
		return append(head(code, n/len(element)), bytes.Repeat(element, n/len(element))...)
	}
	return map[string][]byte{
		"nested array32 in constants":  nested,
		"array32 claims in a constant": constant(fill(claims(0xdd, 1, value.MaxDepth-3), 0xc0)),
		"map32 claims in a constant":   constant(fill(claims(0xdf, 2, value.MaxDepth-3), 0xc0)),
		"constants of empty arrays":    list(0xdd, constant([]byte{0x90})...),
		"map of empty maps":            list(0xdf, 0x00, 0x80),
		"array of empty arrays":        list(0xdd, 0x90),
		"array of empty maps":          list(0xdd, 0x80),
		"map of nil":                   list(0xdf, 0xc0, 0xc0),
		"array of short texts":         list(0xdd, 0xa2, 'x', 'y'),
		"array of integers":            list(0xdd, 0xcd, 1, 0),
		"duplicate keys":               list(0xdf, 0xa1, 'k', 0x90),
		"raw claim":                    fill(head(0xdb, n*2), 'x'),
		"bin claim":                    fill(head(0xc6, math.MaxInt32), 'x'),
		"array claim":                  fill(head(0xdd, math.MaxInt32), 0xc0),
		"map claim":                    fill(head(0xdf, math.MaxInt32), 0xc0),
		"constant claim":               fill(append(head(0xc9, n*4), value.ExtConst), 0xc0),
	}
}
