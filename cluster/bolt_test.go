package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// Raft's log keeps the space that was set aside for it, when it is made, filled and opened again.
func TestBoltKeepsItsSpace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "raft.db")
	for round := range 3 {
		bolt, err := openBolt(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(50) {
			if err := bolt.StoreLog(&raft.Log{Index: uint64(round)*50 + i + 1,
				Data: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		if last, err := bolt.LastIndex(); err != nil || last != uint64(round)*50+50 {
			t.Errorf("round %d: last entry %d, %v", round, last, err)
		}
		if err := bolt.Close(); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if on := st.Sys().(*syscall.Stat_t).Blocks * 512; on < boltAhead {
			t.Errorf("round %d: %d bytes are on the disk, want %d", round, on, boltAhead)
		}
	}
}

// fullStable refuses until there is space.
type fullStable struct {
	raft.StableStore
	refuse atomic.Int64
}

func (f *fullStable) SetUint64([]byte, uint64) error {
	if f.refuse.Add(-1) >= 0 {
		return fmt.Errorf("file resize error: %s", syscall.ENOSPC) // bbolt's words
	}
	return nil
}

func (f *fullStable) Set([]byte, []byte) error {
	if f.refuse.Add(-1) >= 0 {
		return &os.PathError{Op: "write", Path: "raft.db", Err: syscall.EDQUOT}
	}
	return errors.New("another error")
}

// A term or a vote waits for space; raft would end the process. Other errors are passed on.
func TestVotesWaitForSpace(t *testing.T) {
	t.Parallel()
	full := &fullStable{}
	p := patientStable{full, slog.New(slog.DiscardHandler)}
	full.refuse.Store(2)
	if err := p.SetUint64(nil, 1); err != nil {
		t.Errorf("term: %v", err)
	}
	full.refuse.Store(2)
	if err := p.Set(nil, nil); err == nil || err.Error() != "another error" {
		t.Errorf("vote: %v", err)
	}
}
