package value

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// ErrMalformed is returned for bytes that are not exactly one msgpack value as Salt reads it.
var ErrMalformed = errors.New("malformed msgpack")

// Unpack decodes b, which must hold exactly one value.
//
// Raw, str and bin become string if they are valid UTF-8, else []byte (which shares b's memory);
// integers become int64, or uint64 above MaxInt64; floats float64; arrays []any; maps Map;
// extension 78 Time, 79 Const, any other extension its payload as text or bytes. Nesting beyond
// MaxDepth, an array or map as map key, and every other malformation give ErrMalformed.
func Unpack(b []byte) (any, error) {
	d := decoder{b: b, budget: len(b)}
	v, end, err := d.value(0, 0)
	if err != nil {
		return nil, err
	}
	if end != len(b) {
		return nil, malformed(end, "trailing bytes")
	}
	return v, nil
}

// UnpackMap decodes b, which must hold one map, with all its values.
func UnpackMap(b []byte) (Map, error) {
	v, err := Unpack(b)
	if err != nil {
		return nil, err
	}
	m, ok := v.(Map)
	if !ok {
		return nil, fmt.Errorf("unpack map from %T: %w", v, ErrMalformed)
	}
	return m, nil
}

// decoder decodes one message. Its budget is the number of bytes not yet claimed by the element
// counts of arrays and maps, including those inside constants: each element takes at least a byte,
// so no honest input exceeds it, and a dishonest one can't make the decoder allocate more than the
// input's length times a constant.
type decoder struct {
	b      []byte
	budget int
	fresh  bool // new specification: text and bytes keep their own kind
}

// value decodes the value at pos and returns the offset after it.
func (d *decoder) value(pos, depth int) (any, int, error) {
	if depth > MaxDepth {
		return nil, 0, malformed(pos, "nested too deep")
	}
	h, err := ReadHead(d.b, pos)
	if err != nil {
		return nil, 0, err
	}
	switch h.Kind {
	case KindNil:
		return nil, h.End, nil
	case KindFalse:
		return false, h.End, nil
	case KindTrue:
		return true, h.End, nil
	case KindInt:
		return int64(h.Bits), h.End, nil
	case KindUint:
		return h.Bits, h.End, nil
	case KindFloat:
		return math.Float64frombits(h.Bits), h.End, nil
	case KindRaw:
		v, err := d.raw(h, pos)
		return v, h.End + h.N, err
	case KindExt:
		v, err := d.ext(h, pos, depth)
		return v, h.End + h.N, err
	case KindArray:
		return d.array(h, depth)
	default:
		return d.dict(h, depth)
	}
}

func (d *decoder) raw(h Head, pos int) (any, error) {
	s := d.b[h.End : h.End+h.N : h.End+h.N]
	switch {
	case d.fresh && h.Bin:
		return s, nil
	case utf8.Valid(s):
		return string(s), nil
	case d.fresh:
		return nil, malformed(pos, "text is not UTF-8")
	}
	return s, nil
}

func (d *decoder) array(h Head, depth int) (any, int, error) {
	if d.budget -= h.N; d.budget < 0 {
		return nil, 0, malformed(h.End, "array longer than input")
	}
	out, pos := make([]any, h.N), h.End
	var err error
	for i := range out {
		if out[i], pos, err = d.value(pos, depth+1); err != nil {
			return nil, 0, err
		}
	}
	return out, pos, nil
}

func (d *decoder) dict(h Head, depth int) (any, int, error) {
	if d.budget -= 2 * h.N; d.budget < 0 {
		return nil, 0, malformed(h.End, "map longer than input")
	}
	out, pos := make(Map, h.N), h.End
	var err error
	for i := range out {
		if err = checkKey(d.b, pos); err != nil {
			return nil, 0, err
		}
		if out[i].Key, pos, err = d.value(pos, depth+1); err != nil {
			return nil, 0, err
		}
		if out[i].Value, pos, err = d.value(pos, depth+1); err != nil {
			return nil, 0, err
		}
	}
	return out, pos, nil
}

func (d *decoder) ext(h Head, pos, depth int) (any, error) {
	s := d.b[h.End : h.End+h.N : h.End+h.N]
	switch h.Ext {
	case extTime:
		t, err := parseTime(s, pos)
		if err != nil {
			return nil, err
		}
		return Time{t}, nil
	case ExtConst:
		in := decoder{b: s, budget: d.budget, fresh: true}
		v, end, err := in.value(0, depth+1)
		d.budget = in.budget
		if err != nil {
			return nil, err
		}
		two, ok := v.([]any)
		if !ok || len(two) != 2 || end != len(s) {
			return nil, malformed(pos, "constant is not name and value")
		}
		name, ok := two[0].(string)
		if !ok {
			return nil, malformed(pos, "constant's name is not text")
		}
		return Const{Name: name, Value: two[1]}, nil
	}
	if !d.fresh && utf8.Valid(s) {
		return string(s), nil
	}
	return s, nil
}

// parseTime reads the text inside extension 78.
func parseTime(s []byte, pos int) (time.Time, error) {
	if len(s) == len(timeLayout) {
		if t, err := time.Parse(timeLayout, string(s)); err == nil {
			return t, nil
		}
	}
	return time.Time{}, malformed(pos, "time is not of the form YYYYMMDDThh:mm:ss.uuuuuu")
}

// checkKey refuses map keys that Python can't hash.
func checkKey(b []byte, pos int) error {
	if pos < len(b) {
		c := b[pos]
		if (c >= 0x80 && c <= 0x9f) || (c >= 0xdc && c <= 0xdf) {
			return malformed(pos, "array or map as map key")
		}
	}
	return nil
}

// Kind is the family of one encoded value.
type Kind uint8

const (
	KindNil Kind = iota
	KindFalse
	KindTrue
	KindInt   // Bits is an int64
	KindUint  // Bits is above MaxInt64
	KindFloat // Bits of a float64
	KindRaw   // N bytes follow
	KindExt   // N bytes follow, Ext is their code
	KindArray // N values follow
	KindMap   // N keys and values follow
)

// Head is a decoded type byte with its argument. N never exceeds what the input can hold.
type Head struct {
	Kind Kind
	Bin  bool // KindRaw: written as bin
	Ext  int8
	N    int
	Bits uint64
	End  int // offset after the head
}

// ReadHead reads the type byte at pos and its argument. It returns ErrMalformed for a head that
// promises more than b has.
func ReadHead(b []byte, pos int) (Head, error) {
	if pos >= len(b) {
		return Head{}, malformed(pos, "value cut off")
	}
	c := b[pos]
	pos++
	switch {
	case c < 0x80:
		return Head{Kind: KindInt, Bits: uint64(c), End: pos}, nil
	case c >= 0xe0:
		return Head{Kind: KindInt, Bits: uint64(int64(int8(c))), End: pos}, nil
	case c < 0x90:
		return sized(b, Head{Kind: KindMap, N: int(c & 0x0f), End: pos})
	case c < 0xa0:
		return sized(b, Head{Kind: KindArray, N: int(c & 0x0f), End: pos})
	case c < 0xc0:
		return sized(b, Head{Kind: KindRaw, N: int(c & 0x1f), End: pos})
	}
	f := forms[c-0xc0]
	if !f.ok {
		return Head{}, malformed(pos-1, "unused type byte")
	}
	if len(b)-pos < int(f.width) {
		return Head{}, malformed(pos-1, "value cut off")
	}
	h := Head{Kind: f.kind, End: pos + int(f.width)}
	var arg uint64
	switch f.width {
	case 1:
		arg = uint64(b[pos])
	case 2:
		arg = uint64(binary.BigEndian.Uint16(b[pos:]))
	case 4:
		arg = uint64(binary.BigEndian.Uint32(b[pos:]))
	case 8:
		arg = binary.BigEndian.Uint64(b[pos:])
	}
	switch f.kind {
	case KindNil, KindFalse, KindTrue:
		return h, nil
	case KindInt:
		h.Bits = arg
		if f.signed { // extend the sign
			shift := 64 - 8*uint(f.width)
			h.Bits = uint64(int64(arg<<shift) >> shift)
		} else if arg > math.MaxInt64 {
			h.Kind = KindUint
		}
		return h, nil
	case KindFloat:
		h.Bits = arg
		if f.width == 4 {
			h.Bits = math.Float64bits(float64(math.Float32frombits(uint32(arg))))
		}
		return h, nil
	case KindExt:
		if f.fixed > 0 {
			arg = uint64(f.fixed)
		}
		if h.End >= len(b) {
			return Head{}, malformed(pos-1, "value cut off")
		}
		h.Ext = int8(b[h.End])
		h.End++
	}
	if arg > uint64(len(b)) {
		return Head{}, malformed(pos-1, "value longer than input")
	}
	h.Bin, h.N = f.bin, int(arg)
	return sized(b, h)
}

// sized refuses a head that promises more than the input has left.
func sized(b []byte, h Head) (Head, error) {
	least := h.N
	if h.Kind == KindMap {
		least = 2 * h.N
	}
	if least > len(b)-h.End {
		return Head{}, malformed(h.End, "value longer than input")
	}
	return h, nil
}

// forms describes the type bytes c0 to df: how wide their big-endian argument is, and what it
// means.
var forms = [32]struct {
	ok, signed, bin bool
	kind            Kind
	width, fixed    uint8
}{
	0x00: {ok: true, kind: KindNil},
	0x02: {ok: true, kind: KindFalse},
	0x03: {ok: true, kind: KindTrue},
	0x04: {ok: true, kind: KindRaw, width: 1, bin: true},
	0x05: {ok: true, kind: KindRaw, width: 2, bin: true},
	0x06: {ok: true, kind: KindRaw, width: 4, bin: true},
	0x07: {ok: true, kind: KindExt, width: 1},
	0x08: {ok: true, kind: KindExt, width: 2},
	0x09: {ok: true, kind: KindExt, width: 4},
	0x0a: {ok: true, kind: KindFloat, width: 4},
	0x0b: {ok: true, kind: KindFloat, width: 8},
	0x0c: {ok: true, kind: KindInt, width: 1},
	0x0d: {ok: true, kind: KindInt, width: 2},
	0x0e: {ok: true, kind: KindInt, width: 4},
	0x0f: {ok: true, kind: KindInt, width: 8},
	0x10: {ok: true, kind: KindInt, width: 1, signed: true},
	0x11: {ok: true, kind: KindInt, width: 2, signed: true},
	0x12: {ok: true, kind: KindInt, width: 4, signed: true},
	0x13: {ok: true, kind: KindInt, width: 8, signed: true},
	0x14: {ok: true, kind: KindExt, fixed: 1},
	0x15: {ok: true, kind: KindExt, fixed: 2},
	0x16: {ok: true, kind: KindExt, fixed: 4},
	0x17: {ok: true, kind: KindExt, fixed: 8},
	0x18: {ok: true, kind: KindExt, fixed: 16},
	0x19: {ok: true, kind: KindRaw, width: 1},
	0x1a: {ok: true, kind: KindRaw, width: 2},
	0x1b: {ok: true, kind: KindRaw, width: 4},
	0x1c: {ok: true, kind: KindArray, width: 2},
	0x1d: {ok: true, kind: KindArray, width: 4},
	0x1e: {ok: true, kind: KindMap, width: 2},
	0x1f: {ok: true, kind: KindMap, width: 4},
}

func malformed(pos int, what string) error {
	return fmt.Errorf("unpack at byte %d: %s: %w", pos, what, ErrMalformed)
}
