package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// HasState reports whether a node was opened in dir before, so that it has an identity and may be a
// member.
func HasState(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, identityFile))
	return err == nil
}

// dataDeleted returns an error if somebody deleted the data directory, so that nothing that this
// master acknowledges would survive its end.
func (n *Node) dataDeleted() error {
	_, err := os.Stat(filepath.Join(n.cfg.DataDir, identityFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the data directory %s was deleted while this master ran: it ends, because it would lose what it acknowledges now; start it again, with a new one",
		n.cfg.WholeDir)
}
