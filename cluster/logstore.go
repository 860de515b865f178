package cluster

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// trackedLog is a log store that remembers how far the log is known to be committed, so that a
// restarted master applies it before it hears any leader. The commit index must be written
// atomically with entries, so it is stored in their Extensions, which nothing else uses and peers
// never see. Safe for concurrent use.
//
// Raft stages commit indexes here because its RestoreCommittedLogs is on, but this package does the
// replay (Node.replay), for two reasons. Raft 1.8.0 forgets the configuration entries among those
// that it replays, so a restarted master would know no peers and never call an election. It also
// queues the entries before anything drains the queue of 128 batches, so a long log would hang the
// start. GetCommitIndex therefore returns 0 to raft.
type trackedLog struct {
	raft.LogStore
	wrote   func(time.Duration)       // gets the duration of each write; nil: nothing does
	writing func() (ended func())     // Config.Writing; nil: nothing is told
	refused func(error)               // gets what a disk that is not full answers; nil: nothing does
	applied *atomic.Uint64            // index of the last entry that the state has; nil: none
	lacking func(index uint64)        // gets the committed entry that the leader lacks; nil: nothing does
	since   atomic.Pointer[time.Time] // when the write under way began; nil: none is

	mu     sync.Mutex // guards staged
	staged uint64
}

var _ raft.CommitTrackingLogStore = (*trackedLog)(nil)

// StageCommitIndex notes a commit index for the next StoreLogs.
func (t *trackedLog) StageCommitIndex(index uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.staged = max(t.staged, index)
	return nil
}

// GetCommitIndex returns 0, which keeps raft from replaying; see trackedLog.
func (t *trackedLog) GetCommitIndex() (uint64, error) { return 0, nil }

// committed returns the commit index that the last entry carries; 0 if there is none.
func (t *trackedLog) committed() (uint64, error) {
	last, err := t.LogStore.LastIndex()
	if err != nil {
		return 0, fmt.Errorf("read commit index: %w", err)
	}
	if last == 0 {
		return 0, nil
	}
	var entry raft.Log
	if err := t.LogStore.GetLog(last, &entry); err != nil {
		return 0, fmt.Errorf("read commit index of entry %d: %w", last, err)
	}
	if len(entry.Extensions) != 8 {
		return 0, nil
	}
	return min(binary.BigEndian.Uint64(entry.Extensions), last), nil
}

// StoreLog implements raft.LogStore.
func (t *trackedLog) StoreLog(entry *raft.Log) error { return t.StoreLogs([]*raft.Log{entry}) }

// StoreLogs writes entries with the staged commit index. Every entry carries it, because a later
// truncation may leave any of them as the last. It does not touch the caller's entries, which raft
// sends to peers.
func (t *trackedLog) StoreLogs(entries []*raft.Log) error {
	t.mu.Lock()
	ext := binary.BigEndian.AppendUint64(nil, t.staged)
	t.mu.Unlock()
	marked := make([]*raft.Log, len(entries))
	for i, e := range entries {
		c := *e
		c.Extensions = ext
		marked[i] = &c
	}
	if t.writing != nil {
		defer t.writing()()
	}
	began := time.Now()
	t.since.Store(&began)
	err := t.LogStore.StoreLogs(marked)
	t.since.Store(nil)
	switch {
	case err == nil && t.wrote != nil:
		t.wrote(time.Since(began))
	case err != nil && t.refused != nil && !diskFull(err):
		t.refused(err)
	}
	return err
}

// DeleteRange refuses to delete the end of the log from a committed entry on. Raft does that when a
// leader has other entries there, which can't be while all disks keep what they took: a majority
// was put back to older copies. Raft's compaction never reaches the end.
func (t *trackedLog) DeleteRange(first, last uint64) error {
	end, err := t.LogStore.LastIndex()
	if err != nil {
		return fmt.Errorf("delete entries: %w", err)
	}
	t.mu.Lock()
	committed := t.staged
	t.mu.Unlock()
	if t.applied != nil {
		committed = max(committed, t.applied.Load())
	}
	if last < end || first > committed {
		return t.LogStore.DeleteRange(first, last)
	}
	if t.lacking != nil {
		t.lacking(first)
	}
	return fmt.Errorf("entry %d is committed here, and the leader has another one", first)
}

// hangs returns an error while a write has been under way for longer than limit.
func (t *trackedLog) hangs(limit time.Duration) error {
	if began := t.since.Load(); began == nil || time.Since(*began) <= limit {
		return nil
	}
	return fmt.Errorf("the disk hangs: a write of raft's log has taken longer than %v", limit)
}

// GetLog reads an entry without the mark.
func (t *trackedLog) GetLog(index uint64, entry *raft.Log) error {
	if err := t.LogStore.GetLog(index, entry); err != nil {
		return err
	}
	entry.Extensions = nil
	return nil
}
