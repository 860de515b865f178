package value

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// scanner walks a message without decoding it and without allocating. It sums up the memory that
// decoding would take.
type scanner struct {
	b      []byte
	fresh  bool  // new specification
	weight int64 // bytes of memory that decoding the walked part takes at most
	steps  int   // values walked so far
	most   int   // allowed steps; 0 for any number
}

// Weigh returns how many bytes of memory Unpack or UnpackRawMap would at most take for b, which
// must hold one value, without decoding it. It fails exactly when Unpack does.
func Weigh(b []byte) (int64, error) {
	s := scanner{b: b}
	end, err := s.skip(0, 0)
	if err != nil {
		return 0, err
	}
	if end != len(b) {
		return 0, malformed(end, "trailing bytes")
	}
	return s.weight, nil
}

// Sizes of what Unpack makes, in bytes.
const (
	// the target of an any: the head of a text, of bytes, of an array, of a map, or a Time
	weightBox   = 24
	weightValue = 16 // an any
	weightPair  = 48 // an entry of a Map, or the larger one of a RawMap
	weightConst = weightBox + 2*weightValue + 2*weightValue
)

// memory returns the size of an allocation of n bytes: the runtime allocates sizes in steps.
func memory(n int) int64 {
	switch {
	case n < 2:
		return 0
	case n <= 256:
		return int64(n+15) &^ 15
	}
	return int64(n) + int64(n)/6
}

// ErrTooMany is returned by Scan for a message of more values than the caller allows; it wraps
// ErrMalformed.
var ErrTooMany = fmt.Errorf("too many values: %w", ErrMalformed)

// Scan walks b, which must hold one value, without allocating and without decoding it, and stops
// with ErrTooMany after most values (0: any number). If the value is a map it calls entry with each
// key and value, still encoded, and the bytes of memory that decoding the value would take. It
// reports whether the value is a map. It fails where Unpack does.
func Scan(b []byte, most int, entry func(key, value Raw, weight int64)) (isMap bool, err error) {
	s := scanner{b: b, most: most}
	h, err := ReadHead(b, 0)
	if err != nil {
		return false, err
	}
	pos := h.End
	if h.Kind != KindMap {
		pos, err = s.skip(0, 0)
	} else {
		for range h.N {
			before := s.weight
			behind, end, err := s.pair(pos, 1)
			if err != nil {
				return true, err
			}
			entry(b[pos:behind:behind], b[behind:end:end], s.weight-before)
			pos = end
		}
	}
	if err == nil && pos != len(b) {
		err = errTrailing
	}
	return h.Kind == KindMap, err
}

var errTrailing = fmt.Errorf("trailing bytes: %w", ErrMalformed)

// skip returns the offset after the value at pos. It fails exactly when decoding the value would,
// or after the allowed steps.
func (s *scanner) skip(pos, depth int) (int, error) {
	if depth > MaxDepth {
		return 0, malformed(pos, "nested too deep")
	}
	if s.steps++; s.most > 0 && s.steps > s.most {
		return 0, ErrTooMany
	}
	h, err := ReadHead(s.b, pos)
	if err != nil {
		return 0, err
	}
	switch h.Kind {
	case KindInt:
		if h.Bits > math.MaxUint8 { // the runtime preallocates the smaller ones
			s.weight += 8
		}
	case KindUint, KindFloat:
		s.weight += 8
	case KindRaw:
		s.weight += weightBox + memory(h.N)
		if s.fresh && !h.Bin && !utf8.Valid(s.b[h.End:h.End+h.N]) {
			return 0, malformed(pos, "text is not UTF-8")
		}
	case KindExt:
		return s.ext(h, pos, depth)
	case KindArray:
		s.weight += weightBox + memory(weightValue*h.N)
		return s.values(h.End, h.N, depth+1)
	case KindMap:
		s.weight += weightBox + memory(weightPair*h.N)
		pos = h.End
		for range h.N {
			if _, pos, err = s.pair(pos, depth+1); err != nil {
				return 0, err
			}
		}
		return pos, nil
	}
	return h.End + h.N, nil
}

// values skips n values.
func (s *scanner) values(pos, n, depth int) (int, error) {
	var err error
	for range n {
		if pos, err = s.skip(pos, depth); err != nil {
			return 0, err
		}
	}
	return pos, nil
}

// pair skips a map's key and value; behind is the offset between them.
func (s *scanner) pair(pos, depth int) (behind, end int, err error) {
	if err = checkKey(s.b, pos); err != nil {
		return 0, 0, err
	}
	if behind, err = s.skip(pos, depth); err != nil {
		return 0, 0, err
	}
	end, err = s.skip(behind, depth)
	return behind, end, err
}

// ext skips an extension. The content of a constant counts towards the message.
func (s *scanner) ext(h Head, pos, depth int) (int, error) {
	end := h.End + h.N
	switch h.Ext {
	case extTime:
		s.weight += weightBox
		_, err := parseTime(s.b[h.End:end], pos)
		return end, err
	case ExtConst:
		return end, s.constant(h, pos, depth)
	}
	s.weight += weightBox + memory(h.N)
	return end, nil
}

func (s *scanner) constant(h Head, pos, depth int) error {
	in := scanner{b: s.b[h.End : h.End+h.N], fresh: true, weight: s.weight + weightConst,
		steps: s.steps, most: s.most}
	two, err := ReadHead(in.b, 0)
	if err != nil {
		return err
	}
	if two.Kind != KindArray || two.N != 2 || depth+1 > MaxDepth {
		return malformed(pos, "constant is not name and value")
	}
	name, err := ReadHead(in.b, two.End)
	if err != nil {
		return err
	}
	if name.Kind != KindRaw || name.Bin {
		return malformed(pos, "constant's name is not text")
	}
	end, err := in.values(two.End, 2, depth+2)
	if err != nil {
		return err
	}
	if end != len(in.b) {
		return malformed(pos, "constant is not name and value")
	}
	s.weight, s.steps = in.weight, in.steps
	return nil
}
