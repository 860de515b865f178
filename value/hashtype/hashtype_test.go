package hashtype

import (
	"encoding/hex"
	"strings"
	"testing"
)

// TestOf compares the hash of "abc" with what the standards print (RFC 1321, FIPS 180-4).
func TestOf(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]string{
		"md5": "900150983cd24fb0", "sha1": "a9993e364706816a", "sha224": "23097d223405d822",
		"sha256": "ba7816bf8f01cfea", "": "ba7816bf8f01cfea", "sha384": "cb00753f45a35e8b",
		"sha512": "ddaf35a193617aba",
	} {
		fn, err := Of(name)
		if err != nil {
			t.Error(err)
			continue
		}
		h := fn()
		h.Write([]byte("abc"))
		if got := hex.EncodeToString(h.Sum(nil)); !strings.HasPrefix(got, begins) {
			t.Errorf("%q: %s, want %s...", name, got, begins)
		}
	}
	if _, err := Of("crc32"); err == nil || !strings.Contains(err.Error(), `"crc32"`) {
		t.Errorf("an unknown name: %v", err)
	}
}
