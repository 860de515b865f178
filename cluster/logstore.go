package cluster

import (
	"encoding/binary"
	"fmt"
	"slices"
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
	patient time.Duration             // for which a write may take; see hangs
	since   atomic.Pointer[time.Time] // when the write under way began; nil: none is

	mu     sync.Mutex // guards the fields below
	staged uint64
	agreed uint64 // staged, of what is stored: the leader has the same entries up to here
	failed error  // of a write since the last call of refusal
	// Entries after the first index, up to the second, came with a snapshot. What the log has there
	// is from before, and raft keeps it; nobody compared it with the leader's.
	skipped [2]uint64
	cut     []*raft.Log // the end that raft deleted, until entries were written in its place
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
	staged, cut := t.staged, t.cut
	t.mu.Unlock()
	ext := binary.BigEndian.AppendUint64(nil, staged)
	if len(entries) > 0 {
		if i := cutAt(cut, entries[0].Index-1); i >= 0 { // the entry before them was cut
			entries = append(slices.Clone(cut[:i+1]), entries...)
		}
	}
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
	t.mu.Lock()
	if err == nil {
		t.cut, t.agreed = nil, staged
	} else {
		t.failed = err
	}
	t.mu.Unlock()
	switch {
	case err == nil && t.wrote != nil:
		t.wrote(time.Since(began))
	case err != nil && t.refused != nil && !diskFull(err):
		t.refused(err)
	}
	return err
}

// skip notes that a snapshot was installed: see skipped.
func (t *trackedLog) skip(before, index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.skipped[1] > 0 {
		before = min(before, t.skipped[0])
	}
	t.skipped = [2]uint64{before, index}
}

// cutAt returns the place of an entry in what was cut from the log; -1: it isn't there.
func cutAt(cut []*raft.Log, index uint64) int {
	if len(cut) == 0 || index < cut[0].Index || index > cut[len(cut)-1].Index {
		return -1
	}
	return int(index - cut[0].Index)
}

// DeleteRange refuses to delete the end of the log from a committed entry on. Raft does that when a
// leader has other entries there, which can't be while all disks keep what they took: a majority
// was put back to older copies. Raft's compaction never reaches the end.
//
// Raft 1.8.0 counts the deleted end until it has written the leader's entries, which a full disk
// may refuse. It would vote by that end, and as a leader write after the gap. So the end stays
// readable here until then; a restarted master begins without it.
func (t *trackedLog) DeleteRange(first, last uint64) error {
	stored, err := t.LogStore.LastIndex()
	if err != nil {
		return fmt.Errorf("delete entries: %w", err)
	}
	t.mu.Lock()
	committed, cut := t.agreed, t.cut
	uncompared := t.skipped[0] < first && first <= t.skipped[1]
	t.mu.Unlock()
	end := stored
	if len(cut) > 0 {
		end = cut[len(cut)-1].Index
	}
	if last < end {
		return t.LogStore.DeleteRange(first, last)
	}
	if t.applied != nil {
		committed = max(committed, t.applied.Load())
	}
	if first <= committed && !uncompared {
		if t.lacking != nil {
			t.lacking(first)
		}
		return fmt.Errorf("entry %d is committed here, and the leader has another one", first)
	}
	if first > stored {
		return nil // it was cut before
	}
	ending := make([]*raft.Log, stored-first+1, int(stored-first)+1+len(cut))
	for i := range ending {
		ending[i] = new(raft.Log)
		if err := t.LogStore.GetLog(first+uint64(i), ending[i]); err != nil {
			return fmt.Errorf("read entry %d to delete it: %w", first+uint64(i), err)
		}
	}
	if err := t.LogStore.DeleteRange(first, stored); err != nil {
		return err
	}
	t.mu.Lock()
	t.cut = append(ending, cut...)
	t.mu.Unlock()
	return nil
}

// hangs implements logDisk.
func (t *trackedLog) hangs() error {
	if began := t.since.Load(); began == nil || time.Since(*began) <= t.patient {
		return nil
	}
	return fmt.Errorf("the disk hangs: a write of raft's log has taken longer than %v", t.patient)
}

// refusal implements logDisk.
func (t *trackedLog) refusal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.failed
	t.failed = nil
	return err
}

// GetLog reads an entry without the mark.
func (t *trackedLog) GetLog(index uint64, entry *raft.Log) error {
	t.mu.Lock()
	cut := t.cut
	t.mu.Unlock()
	if i := cutAt(cut, index); i >= 0 {
		*entry = *cut[i]
	} else if err := t.LogStore.GetLog(index, entry); err != nil {
		return err
	}
	entry.Extensions = nil
	return nil
}
