package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "key.pem")
	first, err := keptKey(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	again, err := keptKey(path)
	if err != nil || first.Private.Public().Text() != again.Private.Public().Text() ||
		string(first.Token()) != string(again.Token()) {
		t.Errorf("the key changed: %v", err)
	}
	for _, text := range []string{"", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keptKey(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}
