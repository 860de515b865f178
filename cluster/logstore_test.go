package cluster

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
)

func TestTrackedLog(t *testing.T) {
	t.Parallel()
	inner := raft.NewInmemStore()
	log := &trackedLog{LogStore: inner}
	entry := func(index uint64) *raft.Log {
		return &raft.Log{Index: index, Term: 1,
			Data: []byte("d")}
	}
	want := func(what string, commit uint64) {
		t.Helper()
		if got, err := log.committed(); err != nil || got != commit {
			t.Errorf("%s: got %d %v, want %d", what, got, err, commit)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want("empty", 0)
	sent := []*raft.Log{entry(1), entry(2), entry(3)}
	do(log.StoreLogs(sent))
	want("nothing staged", 0)
	do(log.StageCommitIndex(3))
	want("staged, not written", 0)
	do(log.StoreLogs([]*raft.Log{entry(4), entry(5), entry(6)}))
	want("written with entries", 3)
	do(log.StoreLog(entry(7)))
	want("carried on", 3)
	do(log.DeleteRange(5, 7))
	want("after a truncation", 3)
	var back raft.Log
	do(log.GetLog(4, &back))
	if back.Extensions != nil || sent[0].Extensions != nil {
		t.Error("the mark is visible to raft")
	}
	reopened := &trackedLog{LogStore: inner}
	if got, err := reopened.committed(); err != nil || got != 3 {
		t.Errorf("reopened: %d %v", got, err)
	}
	var lacking []uint64
	log.lacking = func(index uint64) { lacking = append(lacking, index) }
	if err := log.DeleteRange(3, 7); err == nil || !slices.Equal(lacking, []uint64{3}) {
		t.Errorf("committed entries were deleted: %v, lacking %v", err, lacking)
	}
	log.applied = new(atomic.Uint64)
	log.applied.Store(4)
	if err := log.DeleteRange(4, 7); err == nil || !slices.Equal(lacking, []uint64{3, 4}) {
		t.Errorf("an applied entry was deleted: %v, lacking %v", err, lacking)
	}
	want("nothing deleted", 3)
	do(log.DeleteRange(1, 3)) // as compaction does
	want("compacted", 3)
	do(inner.DeleteRange(4, 4)) // as recovery does
	want("empty again", 0)
	if got, err := log.GetCommitIndex(); err != nil || got != 0 {
		t.Errorf("raft is told %d %v", got, err)
	}
}

// A snapshot may come to a master whose log ends with entries that only an earlier leader had. They
// are no evidence that a majority was put back to older disks, neither before a restart nor after
// it. What is written in their place is.
func TestEntriesFromBeforeASnapshot(t *testing.T) {
	t.Parallel()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	entries := func(term, first, last uint64) (made []*raft.Log) {
		for index := first; index <= last; index++ {
			made = append(made, &raft.Log{Index: index, Term: term})
		}
		return made
	}
	var lacking []uint64
	open := func(disk raft.LogStore, applied uint64) *trackedLog {
		log := &trackedLog{LogStore: disk, applied: new(atomic.Uint64),
			lacking: func(index uint64) { lacking = append(lacking, index) }}
		log.applied.Store(applied)
		return log
	}
	refused := func(what string, log *trackedLog, first, last uint64) {
		t.Helper()
		lacking = nil
		if err := log.DeleteRange(first, last); err == nil || !slices.Equal(lacking, []uint64{first}) {
			t.Errorf("%s: a committed entry was deleted: %v, lacking %v", what, err, lacking)
		}
	}
	for _, c := range []struct {
		what     string
		last     uint64 // of the entries that only an earlier leader had
		snapshot raft.SnapshotMeta
		old      bool
	}{
		{"the log goes on after the snapshot", 12, raft.SnapshotMeta{Index: 9, Term: 4}, true},
		{"the log ends at the snapshot", 9, raft.SnapshotMeta{Index: 9, Term: 4}, true},
		{"the log ends before the snapshot", 8, raft.SnapshotMeta{Index: 9, Term: 4}, true},
		{"the snapshot has the log's entry", 12, raft.SnapshotMeta{Index: 9, Term: 3}, false},
	} {
		for _, restarted := range []bool{false, true} {
			disk := raft.NewInmemStore()
			log := open(disk, 9)
			do(log.StageCommitIndex(5))
			do(log.StoreLogs(entries(2, 1, 5)))
			do(log.StoreLogs(entries(3, 6, c.last)))
			if restarted {
				log = open(disk, 9)
			}
			do(log.settle(&c.snapshot))
			if !c.old {
				refused(c.what, log, 6, c.last)
				continue
			}
			refused(c.what, log, 5, c.last)
			for range 2 { // again, as after a write that failed
				if err := log.DeleteRange(7, c.last); err != nil {
					t.Errorf("%s: entries that were never applied stay: %v", c.what, err)
				}
			}
			do(log.StoreLogs(entries(5, 7, 20))) // the leader has the same entry 6
			log.applied.Store(20)
			for index, want := range map[uint64]uint64{5: 2, 6: 3, 7: 5} {
				var entry raft.Log
				if do(disk.GetLog(index, &entry)); entry.Term != want {
					t.Errorf("%s: entry %d has term %d, want %d", c.what, index, entry.Term, want)
				}
			}
			do(log.settle(&raft.SnapshotMeta{Index: 9, Term: 5}))
			refused(c.what, log, 9, 20)
		}
	}
	// The log ends before the snapshot, and the leader goes on after that.
	disk := raft.NewInmemStore()
	log := open(disk, 9)
	do(log.StageCommitIndex(5))
	do(log.StoreLogs(entries(2, 1, 5)))
	do(log.StoreLogs(entries(3, 6, 8)))
	do(log.settle(&raft.SnapshotMeta{Index: 9, Term: 4}))
	do(log.StoreLogs(entries(4, 10, 12)))
	if err := disk.GetLog(6, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("a follower would get entry 6, which only an earlier leader had: %v", err)
	}
	do(log.settle(&raft.SnapshotMeta{Index: 9, Term: 4}))
	refused("written after the snapshot", log, 9, 12)
	do(log.settle(&raft.SnapshotMeta{Index: 20, Term: 4})) // over the gap
	do(log.DeleteRange(10, 12))
	// An earlier release left the old end below newer entries.
	disk = raft.NewInmemStore()
	log = open(disk, 20)
	do(log.StoreLogs(append(entries(2, 1, 5), entries(3, 6, 9)...)))
	do(log.StageCommitIndex(19))
	do(log.StoreLogs(entries(4, 10, 20)))
	log = open(disk, 20)
	do(log.settle(&raft.SnapshotMeta{Index: 9, Term: 4}))
	do(log.cutOldEnd())
	do(disk.GetLog(20, new(raft.Log)))
}
