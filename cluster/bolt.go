package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// boltAhead is how much of the disk raft's log has for itself, so that keys and members can still be changed when others
// have filled it to the last byte. bbolt grows its file by 16 MiB and may cut off what lies beyond the pages that it maps,
// so it must be a power of two below that.
const boltAhead = 8 << 20

// openBolt opens raft's log, and sees to it that its first boltAhead bytes are on the disk.
func openBolt(path string, log *slog.Logger) (*raftboltdb.BoltStore, error) {
	open := func() (*raftboltdb.BoltStore, error) {
		return raftboltdb.New(raftboltdb.Options{
			Path: path, BoltOptions: &bbolt.Options{Timeout: 3 * time.Second, FreelistType: bbolt.FreelistMapType},
		})
	}
	bolt, err := open()
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, errors.Join(err, bolt.Close())
	}
	if err := allocate(path, boltAhead); err != nil {
		log.Warn("no space could be set aside for raft's log; on a full disk keys and members can't be changed", "path", path, "err", err)
	}
	if st.Size() >= boltAhead {
		return bolt, nil
	}
	// bbolt must map the file as large as it is now, or it cuts off what was added.
	if err := bolt.Close(); err != nil {
		return nil, err
	}
	return open()
}

// allocate gives a file that many bytes of the disk, zeros behind its end. A file system that can't is no error.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("allocate %d bytes: %w", size, err)
	} else {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
