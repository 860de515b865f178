package differential

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"testing"

	"clustermaster/value"
)

// FuzzMsgpack compares value's codec with salt.payload: what is refused, the value, and how it is
// packed again in both specifications.
func FuzzMsgpack(f *testing.F) {
	for _, v := range []any{nil, true, int64(-1), uint64(1) << 63, 1.5, "text", "naïve", "\xff", []any{},
		value.Map{}, m("fun", "test.ping", "arg", []any{int64(1), m("__kwarg__", true)}, "jid", "20261124"),
		m(int64(1), "a", true, "b", nil, 1.0), value.Const{Name: "NOT_SET"}} {
		b, err := value.Pack(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		if b, err = value.PackNew(v); err == nil {
			f.Add(b)
		}
	}
	for _, s := range []string{"ddffffffff", "8190c0", "d64f92a101c0", "cb7ff8000000000001", "81c401ff01", "d9",
		"df00000002", "c7184e3230323631313234", "cf8000000000000000", "c1", "8201a16101a162",
		"ca3fc00000", "c0c0", "c7154e323032363131323454303130323033", "d40061", "92a1ffc401ff"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	salt := open(f, "msgpack", nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		theirs, ok := salt.ask(t, b)
		if !ok {
			return
		}
		if rule := differentMsgpack(theirs[0]); rule != "" {
			salt.skip(t, rule)
		}
		v, err := value.Unpack(b)
		if err != nil && oddConstant.Match(theirs[0].body) {
			salt.skip(t, "constants") // docs/differences.md, Safer, Channel: constants
		}
		if err != nil || theirs[0].kind == '!' {
			if err == nil || theirs[0].kind != '!' {
				salt.differ(t, "%x: ours %s, %v; Salt's %v", b, show(v), err, theirs[0])
			}
			return
		}
		if ours := show(v); !bytes.Equal(ours, theirs[0].body) {
			salt.differ(t, "%x:\nours   %q\nSalt's %q", b, ours, theirs[0].body)
		}
		for i, pack := range []func(any) ([]byte, error){value.Pack, value.PackNew} {
			ours, err := pack(unrepeated(v))
			if want := theirs[i+1]; (err == nil) != (want.kind == '=') ||
				err == nil && !bytes.Equal(ours, want.body) {
				salt.differ(t, "%x, packed again (new specification: %t):\nours   %x, %v\nSalt's %x, %v", b,
					i == 1, ours, err,
					want.body, want)
			}
		}
	})
}

// oddConstant finds constants whose name is no text.
var oddConstant = regexp.MustCompile(`c\[[^s]`)

// differentMsgpack names the rule that leaves an answer out, or is empty.
func differentMsgpack(theirs part) string {
	if bytes.Contains(theirs.body, []byte("?Timestamp")) ||
		bytes.HasPrefix(theirs.body, []byte("ValueError: invalid timestamp data")) {
		return "timestamps" // docs/differences.md, Channel: the timestamps of msgpack
	}
	return ""
}

// unrepeated drops repeated keys: a value.Map keeps them as they came, a dict does not.
func unrepeated(v any) any {
	switch v := v.(type) {
	case value.Map:
		out := value.Map{}
		for _, p := range python(v) {
			out = append(out, value.Pair{Key: p.Key, Value: unrepeated(p.Value)})
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = unrepeated(v[i])
		}
		return out
	case value.Const:
		return value.Const{Name: v.Name, Value: unrepeated(v.Value)}
	}
	return v
}
