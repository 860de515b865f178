package cluster

import (
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// patientStable keeps raft's term and vote. It waits while the disk is full, because raft ends the
// process when it can't store a new term. A master that waits here neither votes nor leads, which
// is right. Its log refuses entries without help, and raft goes on.
type patientStable struct {
	raft.StableStore
	writing func() (ended func())
	log     *slog.Logger
}

// Set implements raft.StableStore.
func (p patientStable) Set(key, value []byte) error {
	return p.wait(func() error { return p.StableStore.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (p patientStable) SetUint64(key []byte, value uint64) error {
	return p.wait(func() error { return p.StableStore.SetUint64(key, value) })
}

// Pauses between tries on a full disk and between log lines about them.
const (
	retryFull = 100 * time.Millisecond
	tellFull  = 10 * time.Second
)

func (p patientStable) wait(write func() error) error {
	var told time.Time
	for {
		ended := p.writing()
		err := write()
		ended()
		if err == nil {
			return nil
		}
		if !diskFull(err) { // raft panics with it
			p.log.Error("the disk refuses raft's term or vote: this master ends; replace that disk, and start it again", "err", err)
			return err
		}
		if now := time.Now(); now.Sub(told) >= tellFull {
			told = now
			p.log.Error("the disk is full; this master takes no part in votes until there is space again", "err", err)
		}
		time.Sleep(retryFull)
	}
}

// diskFull also recognizes bbolt's errors, some of which have the cause only as text.
func diskFull(err error) bool {
	if err == nil {
		return false
	}
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || strings.Contains(err.Error(), full.Error()) {
			return true
		}
	}
	return false
}
