package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"clustermaster/wire"
)

func TestPinnedBy(t *testing.T) {
	t.Parallel()
	const pub = "-----BEGIN PUBLIC KEY-----\nAAAA\nBBBB\n-----END PUBLIC KEY-----"
	shown, err := wire.Fingerprint(pub, "sha256")
	if err != nil {
		t.Fatal(err)
	}
	sum := func(text string) string {
		b := sha256.Sum256([]byte(text))
		return hex.EncodeToString(b[:])
	}
	other := strings.Replace(pub, "AAAA", "AAAB", 1)
	for _, option := range []string{shown, sum(pub), sum(pub + "\n"), strings.ToUpper(sum(pub)), " " + shown + "\n"} {
		is := pinnedBy(option)
		if !is(pub) || !is(pub+"\n") || !is(strings.ReplaceAll(pub, "\n", "\r\n")+"\r\n") {
			t.Errorf("%s is not of its key", option)
		}
		if is(other) || is("") {
			t.Errorf("%s is of another key", option)
		}
	}
	if pinnedBy("x")(pub) || pinnedBy("") != nil {
		t.Error("no fingerprint pins a key")
	}
}
