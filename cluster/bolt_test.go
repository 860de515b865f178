package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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

// A log whose pages are whole but for a key is refused before anything is written to it.
func TestDamagedKeysStopTheStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "raft.db")
	bolt, err := openBolt(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const last = 0x1122
	for i := uint64(last - 50); i <= last; i++ {
		if err := bolt.StoreLog(&raft.Log{Index: i, Data: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := bolt.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, wrong := range map[string]uint64{"lower than its page": 3, "twice": last - 1} {
		key := binary.BigEndian.AppendUint64(nil, last)
		damaged := bytes.ReplaceAll(whole, key, binary.BigEndian.AppendUint64(nil, wrong))
		if bytes.Equal(damaged, whole) {
			t.Fatal("the key is not in the file")
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := openBolt(path, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), path+" is damaged") ||
			!strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v", what, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
			t.Errorf("%s: the file was changed, %v", what, err)
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
	p := patientStable{full, func() func() { return func() {} }, slog.New(slog.DiscardHandler)}
	full.refuse.Store(2)
	if err := p.SetUint64(nil, 1); err != nil {
		t.Errorf("term: %v", err)
	}
	full.refuse.Store(2)
	if err := p.Set(nil, nil); err == nil || err.Error() != "another error" {
		t.Errorf("vote: %v", err)
	}
}
