package cluster

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// privateSnapshots hides snapshots, which hold every key of the cluster, from other users: raft
// writes them with the umask.
type privateSnapshots struct {
	raft.SnapshotStore
	dir string // where the store makes a folder for each
}

// Create implements raft.SnapshotStore. When the store returns, the files exist and are empty.
func (s privateSnapshots) Create(version raft.SnapshotVersion, index, term uint64,
	configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration,
		configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(filepath.Join(s.dir, sink.ID()+".tmp"),
		func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return os.Chmod(path, 0o600)
		})
	if err != nil {
		_ = sink.Cancel() // the error says more
		return nil, fmt.Errorf("make snapshot private: %w", err)
	}
	return sink, nil
}
