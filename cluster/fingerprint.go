package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"clustermaster/wire"
)

// pinnedBy returns what tells by the option cluster_pub_fingerprint whether a public key, PEM, is
// the cluster's; nil without the option. The option is what `salt-key -F master` shows, or the
// SHA-256 of the PEM text, which Salt 3008 compares (salt/channel/server.py): unchanged, and
// trimmed with and without a line end, because `sha256sum cluster.pub` counts the file's own.
func pinnedBy(fingerprint string) func(pub string) bool {
	if fingerprint == "" {
		return nil
	}
	want := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(fingerprint), ":", ""))
	return func(pub string) bool {
		shown, err := wire.Fingerprint(pub, "sha256")
		if err == nil && strings.ReplaceAll(shown, ":", "") == want {
			return true
		}
		clean := strings.TrimSpace(strings.ReplaceAll(pub, "\r\n", "\n"))
		for _, text := range []string{pub, clean, clean + "\n"} {
			if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) == want {
				return true
			}
		}
		return false
	}
}
