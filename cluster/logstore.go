package cluster

import (
	"encoding/binary"
	"errors"
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
	agreed uint64      // staged, of what is stored: the leader has the same entries up to here
	failed error       // of a write since the last call of refusal
	cut    []*raft.Log // the end that was deleted, until entries were written in its place
	old    uint64      // first entry of the end that settle found; 0: none
	// index and term of the snapshot over that end
	overIndex, overTerm uint64
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
	staged := t.staged
	t.mu.Unlock()
	if t.writing != nil {
		defer t.writing()()
	}
	began := time.Now()
	t.since.Store(&began)
	err := t.cutOldEnd()
	if err == nil {
		err = t.LogStore.StoreLogs(t.marked(entries, staged))
	}
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

// marked returns copies of entries with a commit index, and before them those that they follow and
// that were cut. They may follow the snapshot over that end instead.
func (t *trackedLog) marked(entries []*raft.Log, commit uint64) []*raft.Log {
	t.mu.Lock()
	cut, index, term := t.cut, t.overIndex, t.overTerm
	t.mu.Unlock()
	if len(entries) > 0 {
		before := entries[0].Index - 1
		if i := cutAt(cut, before); i >= 0 && (before != index || cut[i].Term == term) {
			entries = append(slices.Clone(cut[:i+1]), entries...)
		}
	}
	ext := binary.BigEndian.AppendUint64(nil, commit)
	marked := make([]*raft.Log, len(entries))
	for i, e := range entries {
		c := *e
		c.Extensions = ext
		marked[i] = &c
	}
	return marked
}

// settle finds the end of the log that is from before a snapshot and not known to be committed: all
// after the commit index, if the entry at the snapshot's index has another term or the log ends
// before it. Raft keeps that end, which a leader may replace. No entry is written after it.
func (t *trackedLog) settle(snapshot *raft.SnapshotMeta) error {
	last, err := t.LogStore.LastIndex()
	if err != nil {
		return fmt.Errorf("compare the log with a snapshot: %w", err)
	}
	var entry raft.Log
	if last >= snapshot.Index {
		err := t.LogStore.GetLog(snapshot.Index, &entry)
		if errors.Is(err, raft.ErrLogNotFound) || err == nil && entry.Term == snapshot.Term {
			return nil // the log goes on from the snapshot
		}
		if err != nil {
			return fmt.Errorf("compare entry %d with a snapshot: %w", snapshot.Index, err)
		}
	}
	committed, err := t.committed()
	if err != nil {
		return err
	}
	if committed >= snapshot.Index { // an earlier release has written a newer end after the old one
		return nil
	}
	first := last + 1
	for ; first > committed+1; first-- {
		err := t.LogStore.GetLog(first-1, &entry)
		if errors.Is(err, raft.ErrLogNotFound) { // a gap that ends with an earlier snapshot
			break
		}
		if err != nil {
			return fmt.Errorf("compare entry %d with a snapshot: %w", first-1, err)
		}
	}
	if first <= last {
		t.mu.Lock()
		t.old, t.overIndex, t.overTerm = first, snapshot.Index, snapshot.Term
		t.mu.Unlock()
	}
	return nil
}

// cutOldEnd deletes the end that settle found.
func (t *trackedLog) cutOldEnd() error {
	t.mu.Lock()
	old := t.old
	t.mu.Unlock()
	if old == 0 {
		return nil
	}
	last, err := t.LogStore.LastIndex()
	if err == nil && old <= last {
		err = t.cutEnd(old, last)
	}
	if err != nil {
		return fmt.Errorf("cut entries from before a snapshot: %w", err)
	}
	t.mu.Lock()
	t.old = 0
	t.mu.Unlock()
	return nil
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
	committed, cut, old := t.agreed, t.cut, t.old
	t.mu.Unlock()
	end := stored
	if len(cut) > 0 {
		end = cut[len(cut)-1].Index
	}
	if last < end {
		return t.LogStore.DeleteRange(first, last)
	}
	if first > stored {
		return nil // it was cut before
	}
	if t.applied != nil {
		committed = max(committed, t.applied.Load())
	}
	if first <= committed && (old == 0 || first < old) {
		if t.lacking != nil {
			t.lacking(first)
		}
		return fmt.Errorf("entry %d is committed here, and the leader has another one", first)
	}
	return t.cutEnd(first, stored)
}

// cutEnd deletes the end of the log and keeps it readable; see DeleteRange.
func (t *trackedLog) cutEnd(first, last uint64) error {
	ending := make([]*raft.Log, last-first+1)
	for i := range ending {
		ending[i] = new(raft.Log)
		if err := t.LogStore.GetLog(first+uint64(i), ending[i]); err != nil {
			return fmt.Errorf("read entry %d to delete it: %w", first+uint64(i), err)
		}
	}
	if err := t.LogStore.DeleteRange(first, last); err != nil {
		return err
	}
	t.mu.Lock()
	t.cut = append(ending, t.cut...)
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
