package cluster

import (
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
// are no evidence that a majority was put back to older disks.
func TestEntriesFromBeforeASnapshot(t *testing.T) {
	t.Parallel()
	var lacking []uint64
	log := &trackedLog{LogStore: raft.NewInmemStore(), applied: new(atomic.Uint64),
		lacking: func(index uint64) { lacking = append(lacking, index) }}
	var entries []*raft.Log
	for index := range uint64(7) {
		entries = append(entries, &raft.Log{Index: index + 1, Term: 3})
	}
	if err := log.StoreLogs(entries); err != nil {
		t.Fatal(err)
	}
	log.applied.Store(9)
	log.skip(5, 9)
	if err := log.DeleteRange(5, 7); err == nil || !slices.Equal(lacking, []uint64{5}) {
		t.Errorf("an applied entry was deleted: %v, lacking %v", err, lacking)
	}
	if err := log.DeleteRange(6, 7); err != nil || len(lacking) != 1 {
		t.Errorf("entries that were never applied stay: %v, lacking %v", err, lacking)
	}
}
