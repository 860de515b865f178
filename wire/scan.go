package wire

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// scanner walks a message without decoding it and without allocating. It adds up what decoding would take.
type scanner struct {
	b      []byte
	fresh  bool  // new specification
	weight int64 // bytes of memory that decoding what was walked takes at most
	steps  int   // values that were walked
	most   int   // steps that are allowed; 0 for any number
}

// Weigh returns how many bytes of memory Unpack or UnpackRawMap would at most take for b, which must hold one value,
// without decoding it. It fails exactly when Unpack does.
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
	weightBox   = 24 // what an any points to: the head of a text, of bytes, of an array, of a map, or a Time
	weightValue = 16 // an any
	weightPair  = 48 // an entry of a Map, or the larger one of a RawMap
	weightConst = weightBox + 2*weightValue + 2*weightValue
)

// memory is what an allocation of n bytes takes: the runtime hands out sizes in steps.
func memory(n int) int64 {
	switch {
	case n < 2:
		return 0
	case n <= 256:
		return int64(n+15) &^ 15
	}
	return int64(n) + int64(n)/6
}

// errSteps is malformed's neighbour: well-formed so far, but more values than anybody may send in clear.
var errSteps = fmt.Errorf("more than %d values in clear: %w", maxSteps, ErrMalformed)

// skip returns the offset behind the value at pos, and fails exactly when decoding the value would, or after the steps
// that are allowed.
func (s *scanner) skip(pos, depth int) (int, error) {
	if depth > MaxDepth {
		return 0, malformed(pos, "nested too deep")
	}
	if s.steps++; s.most > 0 && s.steps > s.most {
		return 0, errSteps
	}
	h, err := readHead(s.b, pos)
	if err != nil {
		return 0, err
	}
	switch h.kind {
	case kindInt:
		if h.bits > math.MaxUint8 { // the runtime has the smaller ones
			s.weight += 8
		}
	case kindUint, kindFloat:
		s.weight += 8
	case kindRaw:
		s.weight += weightBox + memory(h.n)
		if s.fresh && !h.bin && !utf8.Valid(s.b[h.end:h.end+h.n]) {
			return 0, malformed(pos, "text is not UTF-8")
		}
	case kindExt:
		return s.ext(h, pos, depth)
	case kindArray:
		s.weight += weightBox + memory(weightValue*h.n)
		return s.values(h.end, h.n, depth+1)
	case kindMap:
		s.weight += weightBox + memory(weightPair*h.n)
		pos = h.end
		for range h.n {
			if _, pos, err = s.pair(pos, depth+1); err != nil {
				return 0, err
			}
		}
		return pos, nil
	}
	return h.end + h.n, nil
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

// ext skips an extension. What is inside a constant counts with the message.
func (s *scanner) ext(h head, pos, depth int) (int, error) {
	end := h.end + h.n
	switch h.ext {
	case extTime:
		s.weight += weightBox
		_, err := parseTime(s.b[h.end:end], pos)
		return end, err
	case extConst:
		return end, s.constant(h, pos, depth)
	}
	s.weight += weightBox + memory(h.n)
	return end, nil
}

func (s *scanner) constant(h head, pos, depth int) error {
	in := scanner{b: s.b[h.end : h.end+h.n], fresh: true, weight: s.weight + weightConst, steps: s.steps, most: s.most}
	two, err := readHead(in.b, 0)
	if err != nil {
		return err
	}
	if two.kind != kindArray || two.n != 2 || depth+1 > MaxDepth {
		return malformed(pos, "constant is not name and value")
	}
	name, err := readHead(in.b, two.end)
	if err != nil {
		return err
	}
	if name.kind != kindRaw || name.bin {
		return malformed(pos, "constant's name is not text")
	}
	end, err := in.values(two.end, 2, depth+2)
	if err != nil {
		return err
	}
	if end != len(in.b) {
		return malformed(pos, "constant is not name and value")
	}
	s.weight, s.steps = in.weight, in.steps
	return nil
}
