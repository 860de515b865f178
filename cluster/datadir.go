package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// HasState reports whether a node was opened in dir before, so that it has an identity and may be a
// member.
func HasState(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, identityFile))
	return err == nil
}

// watchData returns an error once somebody has deleted the data directory. It has a loop of its
// own, because a look at a disk that hangs may not end.
func (n *Node) watchData(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := n.dataDeleted(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
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
