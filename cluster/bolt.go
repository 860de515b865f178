package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// boltAhead is how many bytes of the disk are reserved for raft's log, so that keys and members can
// still change when other programs have filled the disk. bbolt grows its file by 16 MiB and may
// truncate what lies beyond the pages that it maps, so this must be a power of two below that.
const boltAhead = 8 << 20

// openBolt opens raft's log and makes sure that its first boltAhead bytes are allocated on the
// disk.
func openBolt(path string, log *slog.Logger) (*raftboltdb.BoltStore, error) {
	if err := readBolt(path); err != nil {
		return nil, err
	}
	open := func() (*raftboltdb.BoltStore, error) {
		return raftboltdb.New(raftboltdb.Options{
			Path: path, BoltOptions: &bbolt.Options{Timeout: 3 * time.Second,
				FreelistType: bbolt.FreelistMapType},
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
	// bbolt must map the file at its present size, or it truncates what was added.
	if err := bolt.Close(); err != nil {
		return nil, err
	}
	return open()
}

// readBolt reads all of raft's log and changes nothing. bbolt maps the file and trusts its pages: a
// garbage page, or one beyond the end of a truncated file, would end the process.
func readBolt(path string) (err error) {
	if st, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() == 0 {
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damagedLog(path, fmt.Errorf("%v", p))
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 3 * time.Second, ReadOnly: true,
		PreLoadFreelist: true})
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return fmt.Errorf("open %s: %w (is another master running on it?)", path, err)
	case errors.Is(err, fs.ErrPermission):
		return err
	}
	if err != nil {
		return damagedLog(path, err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return readBucket(name, b) })
	})
	if err != nil {
		return damagedLog(path, err)
	}
	return nil
}

// readBucket reads each key and value. A page may be garbage in its keys alone: then the keys are
// out of order, or a search doesn't find one of them.
func readBucket(name []byte, b *bbolt.Bucket) error {
	var before []byte
	sum := 0
	return b.ForEach(func(k, v []byte) error {
		for _, c := range v {
			sum += int(c)
		}
		if before != nil && bytes.Compare(before, k) >= 0 || v != nil && b.Get(k) == nil {
			return fmt.Errorf("key %x of %s is out of order", k, name)
		}
		before = k
		return nil
	})
}

func damagedLog(path string, err error) error {
	return fmt.Errorf("raft's log %s is damaged: %w; %s", path, err, rejoinRemedy)
}

// allocate reserves size bytes of the disk for a file; bytes beyond the old end are zero. A file
// system that can't do this is not an error.
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
