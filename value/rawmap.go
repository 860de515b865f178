package value

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// RawPair is one entry of a RawMap.
type RawPair struct {
	Key   string
	Value Raw

	other bool // Key holds the encoding of a key that is not text
}

// Other reports whether the key is not text; Key then holds its encoding.
func (p RawPair) Other() bool { return p.other }

// RawMap is a msgpack map in wire order whose values are still encoded: the form for hot paths,
// where most values only pass through. If a key is repeated, the last one counts.
type RawMap []RawPair

// UnpackRawMap decodes the top level of b, which must hold one map. Values share b's memory. It
// accepts exactly what UnpackMap accepts.
func UnpackRawMap(b []byte) (RawMap, error) {
	h, err := ReadHead(b, 0)
	if err != nil {
		return nil, err
	}
	if h.Kind != KindMap {
		return nil, fmt.Errorf("unpack map: %w", ErrMalformed)
	}
	s := scanner{b: b}
	out := make(RawMap, 0, min(h.N, 64)) // the head's count is not trustworthy
	pos := h.End
	for range h.N {
		behind, end, err := s.pair(pos, 1)
		if err != nil {
			return nil, err
		}
		p := RawPair{Value: Raw(b[behind:end:end])}
		p.Key, p.other = rawKey(b[pos:behind])
		out = append(out, p)
		pos = end
	}
	if pos != len(b) {
		return nil, malformed(pos, "trailing bytes")
	}
	return out, nil
}

// Entries calls fn with each key and value of r, which must be one map, in wire order and still
// encoded, sharing r's memory: for callers that need few of many keys. It fails where UnpackMap
// does; it has then called fn with the entries before that point.
func (r Raw) Entries(fn func(key, value Raw)) error {
	isMap, err := Scan(r, 0, func(key, value Raw, _ int64) { fn(key, value) })
	if err == nil && !isMap {
		err = fmt.Errorf("unpack map: %w", ErrMalformed)
	}
	return err
}

// Lookup finds the value that Map.Get would find in the decoded r, without allocating; it is empty
// for an absent key. r must be a map and must have been scanned.
func (r Raw) Lookup(key string) (value Raw) {
	h, err := ReadHead(r, 0)
	if err != nil || h.Kind != KindMap {
		return nil
	}
	s := scanner{b: r}
	pos := h.End
	for range h.N {
		behind, end, err := s.pair(pos, 1)
		if err != nil {
			return nil
		}
		if k, ok := r[pos:behind].KeyText(); ok && string(k) == key {
			value = r[behind:end:end]
		}
		pos = end
	}
	return value
}

// KeyText returns what r, an encoded map key, is decoded to, sharing memory with r, and whether it
// is text: an unknown extension is its payload, for Unpack as for Salt's master.
func (r Raw) KeyText() ([]byte, bool) {
	h, err := ReadHead(r, 0)
	unknown := h.Kind == KindExt && h.Ext != extTime && h.Ext != ExtConst
	if err != nil || h.Kind != KindRaw && !unknown {
		return nil, false
	}
	text := r[h.End : h.End+h.N : h.End+h.N]
	return text, utf8.Valid(text)
}

// rawKey reads an encoded map key; for a key that is not text it returns the encoding, with other
// set.
func rawKey(r Raw) (key string, other bool) {
	if s, ok := r.KeyText(); ok {
		return Intern(s), false
	}
	return string(r), true
}

// Get returns the encoded value of a text key, and whether it is there.
func (m RawMap) Get(key string) (Raw, bool) {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].Key == key && !m[i].other {
			return m[i].Value, true
		}
	}
	return nil, false
}

// String returns the value of key if it is text, else "".
func (m RawMap) String(key string) string {
	r, _ := m.Get(key)
	s, _ := r.Text()
	return s
}

// Int returns the value of key, and whether it is an integer.
func (m RawMap) Int(key string) (int64, bool) {
	r, _ := m.Get(key)
	return r.Int()
}

// Bytes returns the value of key if it is text or bytes, else nil. It shares memory with the map.
func (m RawMap) Bytes(key string) []byte {
	r, _ := m.Get(key)
	b, _ := r.Bytes()
	return b
}

// Without returns a copy of m that lacks the given keys.
func (m RawMap) Without(keys ...string) RawMap {
	out := make(RawMap, 0, len(m))
	for _, p := range m {
		if p.other || !slices.Contains(keys, p.Key) {
			out = append(out, p)
		}
	}
	return out
}

// Append adds a text key with an encoded value at the end and returns the longer map, as append
// does.
func (m RawMap) Append(key string, value Raw) RawMap {
	return append(m, RawPair{Key: key, Value: value})
}

// Pack encodes the map.
func (m RawMap) Pack() ([]byte, error) {
	n := 5
	for i := range m {
		n += len(m[i].Key) + len(m[i].Value) + 3
	}
	return AppendPack(make([]byte, 0, n), m)
}

// Map decodes all values.
func (m RawMap) Map() (Map, error) {
	out := make(Map, len(m))
	for i, p := range m {
		v, err := p.Value.value()
		if err != nil {
			return nil, fmt.Errorf("unpack value of %q: %w", p.Key, err)
		}
		out[i] = Pair{p.Key, v}
		if p.other {
			if out[i].Key, err = Unpack([]byte(p.Key)); err != nil {
				return nil, fmt.Errorf("unpack key: %w", err)
			}
		}
	}
	return out, nil
}

// value decodes r, taking an empty Raw for nil as Pack does.
func (r Raw) value() (any, error) {
	if len(r) == 0 {
		return nil, nil
	}
	return Unpack(r)
}

// Intern returns s as a string, without allocating for the keys that every request carries.
func Intern(s []byte) string {
	if k, ok := known[string(s)]; ok {
		return k
	}
	return string(s)
}

// known holds the keys and commands of everyday requests. It is never written to.
var known = func() map[string]string {
	m := make(map[string]string)
	for _, k := range []string{
		"", "enc", "load", "version", "id", "enc_algo", "sig_algo", "sig", "cmd", "nonce", "ts",
		"tok", "token", "pub",
		"return", "retcode", "success", "jid", "fun", "fun_args", "user", "_stamp", "out", "ret",
		"schedule", "metadata",
		"tag", "data", "pretag", "events", "arg", "tgt", "tgt_type", "timeout", "grains", "saltenv",
		"pillarenv",
		"pillar_override", "extra_minion_data", "ver", "path", "loc", "gzip", "prefix", "opts",
		"resources",
		"resource_grains", "master_id", "__kwarg__", "clear", "key", "pillar", "serial",
		"_auth", "_return", "_minion_event", "_pillar", "_master_opts", "_master_tops", "_mine",
		"_mine_get", "_mine_delete",
		"_mine_flush", "_file_list", "_file_find", "_file_hash", "_file_hash_and_stat",
		"_file_envs", "_serve_file",
		"_file_list_emptydirs", "_dir_list", "_symlink_list", "_register_resources", "_file_recv",
		"ping",
	} {
		m[k] = k
	}
	return m
}()
