package conformance

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"clustermaster/value"
)

func pack(t testing.TB, v any) []byte {
	t.Helper()
	b, err := value.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unpack(t testing.TB, b []byte) any {
	t.Helper()
	v, err := value.Unpack(b)
	if err != nil {
		t.Fatalf("unpack %x: %v", b, err)
	}
	return v
}

// show writes a reply in a form that can be compared: keys in wire order; of keys, signatures and
// ciphertexts only kind and length. It opens packed maps inside byte strings.
func show(t testing.TB, reply []byte) string {
	t.Helper()
	v, err := value.Unpack(reply)
	if err != nil {
		return fmt.Sprintf("not msgpack: %x", reply)
	}
	return showValue(v)
}

var nonce = regexp.MustCompile(`^[0-9a-f]{32}$`)

func showValue(v any) string {
	switch v := v.(type) {
	case value.Map:
		var parts []string
		for _, p := range v {
			parts = append(parts, showValue(p.Key)+": "+showValue(p.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, showValue(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []byte:
		if m, err := value.UnpackMap(v); err == nil {
			return "packed" + showValue(m)
		}
		return fmt.Sprintf("%d bytes", len(v))
	case string:
		switch {
		case strings.HasPrefix(v, "-----BEGIN PUBLIC KEY-----"):
			return "PEM"
		case nonce.MatchString(v):
			return "NONCE"
		case len(v) >= 32 && strings.HasPrefix(v, "\x82"), len(v) >= 32 &&
			strings.HasPrefix(v, "\x88"):
			if m, err := value.UnpackMap([]byte(v)); err == nil {
				return "packed" + showValue(m)
			}
		}
		return v
	}
	return fmt.Sprint(v)
}
