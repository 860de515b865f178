package cluster

import (
	"os"
	"path/filepath"
)

// HasState reports whether a node was opened in dir before, so that it has an identity and may be a
// member.
func HasState(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, identityFile))
	return err == nil
}
