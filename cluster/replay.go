package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/level"
	"clustermaster/store/durable"
	"clustermaster/test/knownbug"
)

// trailingSnapshots is how many times SnapshotThreshold the log keeps behind a snapshot: enough to
// begin from the previous snapshot if the newest is damaged.
const trailingSnapshots = 3

// damagedSnapshots is the folder, beside that of the snapshots, where damaged ones are kept for
// inspection.
const damagedSnapshots = "snapshots.damaged"

// replay applies what the disk shows as committed: the newest whole snapshot and the log after it.
// Raft passes the same entries to the machine again once a leader says that they are committed, and
// the machine skips them.
func (n *Node) replay(logs *trackedLog, snapshots raft.SnapshotStore) error {
	have, err := snapshots.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	if len(have) > 0 {
		if err := logs.settle(have[0]); err != nil {
			return damagedLog(filepath.Join(n.cfg.DataDir, "raft", "raft.db"), err)
		}
		// raft doesn't count that end yet; on a full disk it will, until the next write
		if err := logs.cutOldEnd(); err == nil {
			logs.cut = nil
		} else if !diskFull(err) {
			return err
		}
	}
	first, err := logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("read raft log: %w", err)
	}
	last, err := logs.LastIndex()
	if err != nil {
		return fmt.Errorf("read raft log: %w", err)
	}
	commit, err := logs.committed()
	if err != nil {
		return err
	}
	began, err := n.restoreNewest(logs, snapshots, have)
	if err != nil {
		return err
	}
	if knownbug.Is(knownbug.ReplayGap) {
		began = n.machine.applied.Load()
	}
	if len(have) > 0 {
		// the content of a snapshot, even of a damaged one, is committed
		commit = max(commit, have[0].Index)
	}
	if last > began && first > began+1 {
		return fmt.Errorf("raft log begins at entry %d, and the snapshot before it ends at %d: a snapshot is missing from %s; %s",
			first, began, filepath.Join(n.cfg.DataDir, "raft", "snapshots"), rejoinRemedy)
	}
	for i := began + 1; i <= min(commit, last); i++ {
		var entry raft.Log
		if err := logs.GetLog(i, &entry); err != nil {
			return damagedLog(filepath.Join(n.cfg.DataDir, "raft", "raft.db"),
				fmt.Errorf("entry %d: %w", i, err))
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		n.machine.Apply(&entry)
		if err := n.machine.failure(); err != nil {
			return err
		}
	}
	// raft stages from 0 again and must not forget what is known
	return logs.StageCommitIndex(commit)
}

// settle compares the log with a snapshot that was just installed.
func (n *Node) settle() error {
	have, err := n.snapshots.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	if len(have) == 0 {
		return nil
	}
	return n.logs.settle(have[0])
}

// rejoinRemedy is for a member whose Raft state can't be used while other members have theirs.
const rejoinRemedy = "nothing was changed; restore the file from a copy of this disk, or, if other masters " +
	"serve, remove this one there with salt-run cluster.remove and let it join again with another data directory"

// restoreNewest restores the newest whole snapshot of have, which is sorted newest first, and
// returns its index, which may be that of an entry that is no command; 0 if there is no snapshot.
// An older snapshot will do only if the log leads from it to the newest. The damaged ones are then
// moved aside, so that raft does not use them.
func (n *Node) restoreNewest(logs *trackedLog, snapshots raft.SnapshotStore,
	have []*raft.SnapshotMeta) (uint64, error) {
	var errs []error
	for i, meta := range have {
		_, r, err := snapshots.Open(meta.ID)
		if err == nil {
			if i > 0 && (logs.old > 0 || !complete(logs, meta.Index+1, have[0].Index)) {
				r.Close()
				errs = append(errs,
					fmt.Errorf("restore snapshot %s: the log lacks entries that came after it",
						meta.ID))
				break
			}
			err = n.machine.restore(r)
		}
		if err == nil {
			return meta.Index, n.putAside(have[:i], errs)
		}
		err = fmt.Errorf("restore snapshot %s: %w", meta.ID, err)
		if tooNew := new(level.TooNewError); errors.As(err, &tooNew) {
			return 0, err
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return 0, fmt.Errorf("%w; %s", errors.Join(errs...), rejoinRemedy)
	}
	return 0, nil
}

// complete reports whether the log has every entry from first to last.
func complete(logs raft.LogStore, first, last uint64) bool {
	for i := first; i <= last; i++ {
		if logs.GetLog(i, new(raft.Log)) != nil {
			return false
		}
	}
	return true
}

// putAside moves damaged snapshots to a folder of their own. Reasons has one error for each.
func (n *Node) putAside(damaged []*raft.SnapshotMeta, reasons []error) error {
	if len(damaged) == 0 {
		return nil
	}
	from := filepath.Join(n.cfg.DataDir, "raft", "snapshots")
	to := filepath.Join(n.cfg.DataDir, "raft", damagedSnapshots)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("move damaged snapshot aside: %w", err)
	}
	for i, meta := range damaged {
		path := filepath.Join(to, meta.ID)
		err := os.Rename(filepath.Join(from, meta.ID), path)
		if err == nil {
			err = errors.Join(durable.SyncDir(to), durable.SyncDir(from))
		}
		if err != nil {
			return fmt.Errorf("move damaged snapshot aside: %w", err)
		}
		n.log.Error("a snapshot of the replicated state is damaged; this master started from the snapshot before "+
			"it and the log, and nothing is lost; check the disk", "err", reasons[i], "path", path)
	}
	return nil
}
