package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeysAreKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "keys.pem")
	first, err := loadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	again, err := loadKeys(path)
	if err != nil || len(again) != poolKeys || len(first) != poolKeys {
		t.Fatalf("%d keys, then %d, %v", len(first), len(again), err)
	}
	for i := range first {
		if first[i].Private.Public().Text() != again[i].Private.Public().Text() ||
			string(first[i].Token()) != string(again[i].Token()) {
			t.Errorf("key %d changed", i)
		}
	}
	for text, want := range map[string]string{
		"":                             "0 keys, want 4",
		string(first[0].Private.PEM()): "1 keys, want 4",
		"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n": "read minion keys",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadKeys(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
