package wire

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxClear is the largest load, in bytes, that is accepted in clear, that is from anybody: decoding takes some tens of
// times its size in memory. A sign-in has about 1 kB.
const MaxClear = 1 << 20

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
	// ID is the id that an aes request of version 3 claims in clear: a valid id, not yet proved. "" otherwise.
	ID string
	// EncAlgo and SigAlgo are what the minion chose for RSA in the reply; the SHA-1 forms if it did not.
	EncAlgo, SigAlgo string
	// Clear is the load of a clear request.
	Clear Map
	// Sealed is the load of an aes request, sharing the payload's memory: made with the session key of ID for version 3,
	// with the AES key of all minions below.
	Sealed []byte
}

// ParseEnvelope reads a request. A refusal carries the reply that Salt 3008 gives. Sealed shares memory with payload.
func ParseEnvelope(payload []byte) (Envelope, *Refusal) { return ParseEnvelopeFrom(0, payload) }

// ParseEnvelopeFrom is ParseEnvelope for a master that refuses versions below minimum (option minimum_auth_version): with
// "bad load", before it looks at the load.
func ParseEnvelopeFrom(minimum int, payload []byte) (Envelope, *Refusal) {
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
	if version < minimum {
		return Envelope{}, BadLoad("minimum_version")
	}
	e := Envelope{Version: min(version, 3), EncAlgo: algorithm(f.encAlgo, EncSHA1), SigAlgo: algorithm(f.sigAlgo, SigSHA1)}
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
	load, err := f.load.Map()
	if err != nil {
		return Envelope{}, routingError() // can't be: the scan accepted it
	}
	if refusal := checkClearID(load); refusal != nil {
		return Envelope{}, refusal
	}
	if e.Enc == "" {
		return Envelope{}, Failed("enc")
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
type envelopeFields struct{ enc, load, version, id, encAlgo, sigAlgo Raw }

// scanEnvelope finds the fields without allocating: anybody can send an envelope.
func scanEnvelope(payload []byte) (envelopeFields, *Refusal) {
	var f envelopeFields
	d := decoder{b: payload}
	end, err := d.skip(0, 0)
	if err != nil || end != len(payload) {
		return f, routingError()
	}
	h, err := readHead(payload, 0)
	if err != nil || h.kind != kindMap {
		return f, BadLoad("no_envelope")
	}
	pos := h.end
	for range h.n {
		keyEnd, err := d.skip(pos, 1)
		if err != nil {
			return f, routingError()
		}
		valueEnd, err := d.skip(keyEnd, 1)
		if err != nil {
			return f, routingError()
		}
		value := Raw(payload[keyEnd:valueEnd:valueEnd])
		key, _ := Raw(payload[pos:keyEnd]).Bytes()
		switch string(key) {
		case "enc":
			f.enc = value
		case "load":
			f.load = value
		case "version":
			f.version = value
		case "id":
			f.id = value
		case "enc_algo":
			f.encAlgo = value
		case "sig_algo":
			f.sigAlgo = value
		}
		pos = valueEnd
	}
	return f, nil
}

// parseVersion reads the version as leniently as Python's int does, where Salt survives it: texts that are no number, and
// nil, are 0. Arrays and maps are refused.
func parseVersion(r Raw) (int, bool) {
	if len(r) == 0 {
		return 0, true
	}
	h, err := readHead(r, 0)
	if err != nil {
		return 0, false
	}
	switch h.kind {
	case kindArray, kindMap:
		return 0, false
	case kindTrue:
		return 1, true
	case kindInt:
		return int(max(0, min(3, int64(h.bits)))), true
	case kindUint:
		return 3, true
	case kindFloat:
		f := math.Float64frombits(h.bits)
		if math.IsNaN(f) {
			return 0, true
		}
		return int(max(0, min(3, f))), true
	case kindRaw:
		s := strings.TrimFunc(string(r[h.end:h.end+min(h.n, 32)]), pythonSpace)
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, true
		}
		return max(0, min(3, n)), true
	}
	return 0, true
}

// algorithm reads the name of an algorithm; one that is not text is kept as a name that no algorithm has.
func algorithm(r Raw, absent string) string {
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

func checkClearID(load Map) *Refusal {
	v, ok := load.Get("id")
	if !ok {
		return nil
	}
	if s, ok := v.(string); ok {
		if strings.IndexByte(s, 0) >= 0 {
			return refuse(textNullByte, "id_null_byte")
		}
		return nil
	}
	packed, err := Pack(v)
	if err != nil {
		return BadLoad("id")
	}
	return checkID(packed)
}

// maxID is the longest id: ids are names of files.
const maxID = 255

// ValidID reports whether id can name a minion: text without slash, backslash or NUL, that stays inside the folder that it
// is a file name in, and is not longer than a file name can be.
func ValidID(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) <= maxID && !strings.ContainsAny(id, "/\\\x00") && utf8.ValidString(id)
}
