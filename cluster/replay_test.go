package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"clustermaster/cluster/fsm"
)

// openedAlone opens a stand-alone node, waits until it leads, and closes it at the end of use.
func openedAlone(t *testing.T, dir string, use func(n *Node)) {
	t.Helper()
	n, err := Open(Config{ID: "m1", DataDir: dir, SnapshotThreshold: 1 << 20}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	wait, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	if err := n.WaitServing(wait); err != nil {
		t.Fatal(err)
	}
	use(n)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// snapshotAtBarrier makes a snapshot whose index is that of an entry which is no command.
func snapshotAtBarrier(t *testing.T, n *Node) uint64 {
	t.Helper()
	if _, _, err := n.Propose(t.Context(), fsm.Noop{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.raft.Barrier(0).Error(), n.raft.Snapshot().Error()); err != nil {
		t.Fatal(err)
	}
	index := n.raft.LastIndex()
	if index == n.machine.applied.Load() {
		t.Fatal("the snapshot's index is a command's; the test shows nothing")
	}
	return index
}

func cutLog(t *testing.T, dir string, from, to uint64) {
	t.Helper()
	log, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft", "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.DeleteRange(from, to), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// spoil flips a bit of the state in the newest snapshot and returns its name.
func spoil(t *testing.T, dir string) string {
	t.Helper()
	store, err := raft.NewFileSnapshotStore(filepath.Join(dir, "raft"), keptSnapshots, nil)
	if err != nil {
		t.Fatal(err)
	}
	have, err := store.List()
	if err != nil || len(have) == 0 {
		t.Fatalf("snapshots: %v %v", have, err)
	}
	path := filepath.Join(dir, "raft", "snapshots", have[0].ID, "state.bin")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return have[0].ID
}

// A follower may keep entries from before a snapshot that it was sent: the log has a gap that ends
// where the snapshot does, which can be after the last command.
func TestStartFromSnapshotThatEndsAfterTheLastCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var at uint64
	openedAlone(t, dir, func(n *Node) {
		at = snapshotAtBarrier(t, n)
		if _, _, err := n.Propose(t.Context(), fsm.Noop{}); err != nil {
			t.Fatal(err)
		}
	})
	cutLog(t, dir, 3, at)
	openedAlone(t, dir, func(n *Node) {
		if got := n.machine.applied.Load(); got <= at {
			t.Errorf("applied %d, want what came after the snapshot of %d", got, at)
		}
	})
}

func TestDamagedSnapshotFallsBackToTheOneBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var uuid string
	var at uint64
	openedAlone(t, dir, func(n *Node) {
		snapshotAtBarrier(t, n)
		for range 3 {
			if _, _, err := n.Propose(t.Context(), fsm.Noop{}); err != nil {
				t.Fatal(err)
			}
		}
		at = snapshotAtBarrier(t, n)
		c, _ := n.State().Cluster()
		uuid = c.UUID
	})
	name := spoil(t, dir)
	openedAlone(t, dir, func(n *Node) {
		if c, _ := n.State().Cluster(); c.UUID != uuid || n.machine.applied.Load() < at-1 {
			t.Errorf("uuid %q, want %q; applied %d, want all up to %d", c.UUID, uuid,
				n.machine.applied.Load(), at)
		}
	})
	if _, err := os.Stat(filepath.Join(dir, "raft", damagedSnapshots, name)); err != nil {
		t.Errorf("the damaged snapshot was not kept aside: %v", err)
	}
	openedAlone(t, dir, func(*Node) {})
}

// Where the log does not lead from the older snapshot to the newest, beginning there would lose
// what is in between.
func TestDamagedSnapshotWithoutTheLogIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var first, at uint64
	openedAlone(t, dir, func(n *Node) {
		first = snapshotAtBarrier(t, n)
		at = snapshotAtBarrier(t, n)
	})
	cutLog(t, dir, 1, first+1)
	name := spoil(t, dir)
	_, err := Open(Config{ID: "m1", DataDir: dir}, nil, nil, nil)
	if err == nil || !strings.Contains(err.Error(), name) ||
		!strings.Contains(err.Error(), "cluster.remove") {
		t.Errorf("opened without entries %d to %d: %v", first+1, at, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "raft", "snapshots", name)); err != nil {
		t.Errorf("something was changed: %v", err)
	}
}

// A master that stopped between the installation of a snapshot and its next entries, or that an
// earlier release left so, has the end of the log from before the snapshot. It begins without it.
func TestStartFromSnapshotBesideAnOldEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var at uint64
	openedAlone(t, dir, func(n *Node) { at = snapshotAtBarrier(t, n) })
	cutLog(t, dir, at-1, at+9)
	log, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft", "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	committed := binary.BigEndian.AppendUint64(nil, at-2)
	var old []*raft.Log
	for index := at - 1; index <= at+9; index++ {
		old = append(old, &raft.Log{Index: index, Term: 1, Type: raft.LogNoop, Extensions: committed})
	}
	if err := errors.Join(log.StoreLogs(old), log.Close()); err != nil {
		t.Fatal(err)
	}
	openedAlone(t, dir, func(n *Node) {
		var entry raft.Log
		for index := at - 2; index <= at+1; index++ {
			err := n.logs.GetLog(index, &entry)
			if gap := index == at-1 || index == at; gap != errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("entry %d of %d: %v", index, at, err)
			}
		}
		if entry.Term == 1 {
			t.Errorf("entry %d is from before the snapshot", entry.Index)
		}
	})
}

// A leader may go back into the end of the log that a snapshot which was installed doesn't confirm,
// or go on after the snapshot.
func TestSnapshotIsInstalledOverAnOldEnd(t *testing.T) {
	t.Parallel()
	t.Run("back", func(t *testing.T) { t.Parallel(); installedOverAnOldEnd(t, 5, 1) })
	t.Run("on", func(t *testing.T) { t.Parallel(); installedOverAnOldEnd(t, 9, 2) })
}

func installedOverAnOldEnd(t *testing.T, prev, prevTerm uint64) {
	disk, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	n := &Node{snapshots: snapshots, machine: newMachine(fsm.New(), newFeed(), func(err error) { t.Error(err) })}
	n.logs = &trackedLog{LogStore: disk, patient: time.Hour, applied: &n.machine.applied,
		lacking: func(index uint64) { t.Errorf("others are said to lack entry %d", index) }}
	n.machine.installed = n.settle
	layer := newLoopback(t)
	follower := startLoneWith(t, layer, n.logs, n.machine, snapshots)
	defer follower.end(t)
	peer := raft.NewNetworkTransport(newLoopback(t), 3, time.Minute, nil)
	defer peer.Close()
	addr := raft.ServerAddress(layer.Addr().String())
	noop, err := fsm.Encode(fsm.Noop{})
	if err != nil {
		t.Fatal(err)
	}
	send := func(term, prev, prevTerm, last, commit uint64) {
		t.Helper()
		r := &raft.AppendEntriesRequest{RPCHeader: fromLeader, Term: term, PrevLogEntry: prev,
			PrevLogTerm: prevTerm, LeaderCommitIndex: commit}
		for index := prev + 1; index <= last; index++ {
			r.Entries = append(r.Entries, &raft.Log{Index: index, Term: term, Data: noop})
		}
		var answer raft.AppendEntriesResponse
		if err := peer.AppendEntries("follower", addr, r, &answer); err != nil || !answer.Success {
			t.Fatalf("entries from %d: %v %v", prev+1, answer.Success, err)
		}
	}
	send(1, 0, 0, 5, 5)
	send(1, 5, 1, 12, 5)
	state := fsm.New()
	for index := range uint64(9) {
		state.Apply(index+1, fsm.Noop{})
	}
	var data bytes.Buffer
	size, err := state.Snapshot().WriteTo(&data)
	if err != nil {
		t.Fatal(err)
	}
	var answer raft.InstallSnapshotResponse
	if err := peer.InstallSnapshot("follower", addr, snapshotOf(2, 9, size), &answer, &data); err != nil ||
		!answer.Success {
		t.Fatalf("the snapshot: %v %v", answer.Success, err)
	}
	send(3, prev, prevTerm, 10, 10)
	if err := n.machine.wait(t.Context(), 10); err != nil {
		t.Error(err)
	}
	var entry raft.Log
	switch err := disk.GetLog(6, &entry); {
	case prev < 6 && (err != nil || entry.Term != 3):
		t.Errorf("entry 6: term %d, %v", entry.Term, err)
	case prev > 6 && !errors.Is(err, raft.ErrLogNotFound):
		t.Errorf("entry 6, which only an earlier leader had, is written again: term %d, %v", entry.Term, err)
	}
}
