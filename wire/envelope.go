package wire

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"clustermaster/value"
)

// MaxClear is the largest load, in bytes, that is accepted unencrypted, which any host can send. A
// sign-in has about 1 kB.
const MaxClear = 1 << 20

const (
	// maxSteps is the number of values that are read of a request from an unknown sender: those of
	// the longest clear load, and of the envelope.
	maxSteps = MaxClear + 64
	// clearFactor and clearRoom bound the memory for decoding a clear load: a multiple of the
	// request's length, plus what short loads need beyond it. A sign-in takes less than twice its
	// length.
	clearFactor = 4
	clearRoom   = 4 << 10
)

// Values of the envelope key "enc".
const (
	encAES   = "aes"
	encClear = "clear"
)

// Envelope is the outer map of a request.
type Envelope struct {
	// Enc is "clear" or "aes".
	Enc string
	// Version is 0 to 3; a higher one is handled as 3, an unreadable one as 0.
	Version int
	// ID is the id that an aes request of version 3 claims in clear: a valid id, not yet proved.
	// Otherwise it is "".
	ID string
	// EncAlgo and SigAlgo are the minion's choice for RSA in the reply, or the SHA-1 forms.
	EncAlgo, SigAlgo string
	// Clear is the load of a clear request.
	Clear value.Map
	// Sealed is the load of an aes request, sharing the payload's memory: made with the session key
	// of ID for version 3, with the AES key of all minions below.
	Sealed []byte
}

// EnvelopeLimits bounds the requests that a master accepts from unknown senders.
type EnvelopeLimits struct {
	// MinimumVersion refuses lower versions (option minimum_auth_version) with "bad load", before
	// the load is looked at.
	MinimumVersion int
	// Room is the number of bytes that decoding a clear load may take beyond four times the
	// request's length; at least 4 KiB.
	Room int64
	// Memory, if not nil, is asked before a clear load is decoded.
	Memory Memory
}

// Memory accounts for the memory of a request while it is served.
type Memory interface {
	// Hold adds n bytes; it returns false if that is too much.
	Hold(n int64) bool
}

// ParseEnvelope reads a request. A refusal contains Salt 3008's reply. Sealed shares memory with
// payload.
func ParseEnvelope(payload []byte) (Envelope, *Refusal) {
	return ParseEnvelopeWithin(EnvelopeLimits{}, payload)
}

// ParseEnvelopeWithin is ParseEnvelope with a master's limits.
func ParseEnvelopeWithin(lim EnvelopeLimits, payload []byte) (Envelope, *Refusal) {
	f, refusal := scanEnvelope(payload)
	if refusal != nil {
		return Envelope{}, refusal
	}
	if len(f.enc) == 0 || len(f.load) == 0 {
		return Envelope{}, BadLoad("no_envelope")
	}
	version, ok := parseVersion(f.version)
	if !ok {
		return Envelope{}, BadLoad("version")
	}
	if version < lim.MinimumVersion {
		return Envelope{}, BadLoad("minimum_version")
	}
	e := Envelope{Version: min(version, 3), EncAlgo: algorithm(f.encAlgo, EncSHA1),
		SigAlgo: algorithm(f.sigAlgo, SigSHA1)}
	switch enc, _ := f.enc.Bytes(); string(enc) {
	case encAES:
		return e.sealed(f)
	case encClear:
		e.Enc = encClear
	}
	if !f.load.IsMap() {
		return Envelope{}, refuse(textNotAMap, "not_a_map")
	}
	if len(f.load) > MaxClear {
		return Envelope{}, BadLoad("clear_too_long")
	}
	if refusal := checkID(f.load.Lookup("id")); refusal != nil {
		return Envelope{}, refusal
	}
	if e.Enc == "" {
		return Envelope{}, Failed("enc")
	}
	if f.weight > clearFactor*int64(len(payload))+max(lim.Room, clearRoom) {
		return Envelope{}, BadLoad("clear_too_dense")
	}
	if lim.Memory != nil && !lim.Memory.Hold(f.weight) {
		return Envelope{}, NoMemory()
	}
	load, err := f.load.Map()
	if err != nil {
		return Envelope{}, routingError() // impossible: the scan accepted it
	}
	e.Clear = load
	return e, nil
}

func (e Envelope) sealed(f envelopeFields) (Envelope, *Refusal) {
	e.Enc = encAES
	if e.Version > 2 {
		id, _ := f.id.Bytes()
		if !ValidID(string(id)) {
			return Envelope{}, BadLoad("outer_id")
		}
		e.ID = string(id)
	}
	var ok bool
	if e.Sealed, ok = f.load.Bytes(); !ok {
		return Envelope{}, BadLoad("not_sealed")
	}
	return e, nil
}

// envelopeFields are the encoded values of an envelope; absent ones are empty.
type envelopeFields struct {
	enc, load, version, id, encAlgo, sigAlgo value.Raw

	weight int64 // of load
}

// scanEnvelope finds the fields without allocating and without decoding, because any host can send
// an envelope. A sealed load counts as one value, so only a request longer than any clear load can
// exceed maxSteps.
func scanEnvelope(payload []byte) (envelopeFields, *Refusal) {
	var f envelopeFields
	isMap, err := value.Scan(payload, maxSteps, f.set)
	switch {
	case err != nil:
		return envelopeFields{}, scanRefusal(err)
	case !isMap:
		return envelopeFields{}, BadLoad("no_envelope")
	}
	return f, nil
}

func scanRefusal(err error) *Refusal {
	if errors.Is(err, value.ErrTooMany) {
		return BadLoad("clear_too_long")
	}
	return routingError()
}

func (f *envelopeFields) set(key, val value.Raw, weight int64) {
	name, _ := key.Bytes()
	switch string(name) {
	case "enc":
		f.enc = val
	case "load":
		f.load, f.weight = val, weight
	case "version":
		f.version = val
	case "id":
		f.id = val
	case "enc_algo":
		f.encAlgo = val
	case "sig_algo":
		f.sigAlgo = val
	}
}

// parseVersion reads the version as leniently as Python's int does, where Salt survives it: text
// that is not a number, and nil, count as 0. It refuses arrays and maps.
func parseVersion(r value.Raw) (int, bool) {
	if len(r) == 0 {
		return 0, true
	}
	h, err := value.ReadHead(r, 0)
	if err != nil {
		return 0, false
	}
	switch h.Kind {
	case value.KindArray, value.KindMap:
		return 0, false
	case value.KindTrue:
		return 1, true
	case value.KindInt:
		return int(max(0, min(3, int64(h.Bits)))), true
	case value.KindUint:
		return 3, true
	case value.KindFloat:
		f := math.Float64frombits(h.Bits)
		if math.IsNaN(f) {
			return 0, true
		}
		return int(max(0, min(3, f))), true
	case value.KindRaw:
		s := strings.TrimFunc(string(r[h.End:h.End+min(h.N, 32)]), value.IsSpace)
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, true
		}
		return max(0, min(3, n)), true
	}
	return 0, true
}

// algorithm reads the name of an algorithm; a value that is not text becomes a name that no
// algorithm has.
func algorithm(r value.Raw, absent string) string {
	if len(r) == 0 {
		return absent
	}
	b, ok := r.Bytes()
	switch {
	case !ok:
		return "(not text)"
	case string(b) == absent:
		return absent
	}
	return string(b[:min(len(b), maxEchoed)])
}

// maxID is the longest id, because ids are file names.
const maxID = 255

// ValidID reports whether id can name a minion: text without slash, backslash or control
// characters, that stays inside its folder when used as a file name, and is not longer than a file
// name can be. Characters that end a line in YAML count as control characters: an id may stand
// unquoted in an SLS file that reacts to a stranger's sign-in.
func ValidID(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) <= maxID && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, func(r rune) bool {
			return r == '/' || r == '\\' || unicode.IsControl(r) || r == lineSeparator ||
				r == paragraphSeparator
		})
}

const (
	lineSeparator      = '\u2028'
	paragraphSeparator = '\u2029'
)
