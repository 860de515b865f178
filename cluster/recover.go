package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
)

// recoveryFile exists from the order to recover until the new history has begun.
const recoveryFile = "recover.json"

// ErrReopen is the error that ends Run after Recover: close the node and open it again.
var ErrReopen = errors.New("recovery was ordered: the cluster is opened again")

// reopenAfter is the delay before the node closes, so that the answer to the order gets out.
const reopenAfter = time.Second

// recovery is an order to go on alone under a new uuid.
type recovery struct {
	UUID string `json:"uuid"`
}

// Recover makes this member the whole cluster after the quorum was lost for good. It refuses while
// there is a quorum, or masters that may become one, and unless confirm is the cluster_id. It
// returns the ids of the members that are given up. Run ends with ErrReopen soon after, and the
// next Open begins a new history with all that this member knows, committed or not.
func (n *Node) Recover(ctx context.Context, confirm string) ([]string, error) {
	if n.port == nil {
		return nil, ErrStandalone
	}
	c, founded := n.state.Cluster()
	if _, member := n.state.MemberByNode(n.self.Node); !founded || !member {
		return nil,
			fmt.Errorf("%w: there is nothing here to recover; to restore a backup, run cluster.restore on a new "+
				"cluster", ErrNotFounded)
	}
	var lost []string
	for _, m := range n.state.Members() {
		if m.Node != n.self.Node {
			lost = append(lost, m.ID)
		}
	}
	if len(lost) == 0 {
		return nil, fmt.Errorf("peer %s: is the only member already; nothing to recover", n.self.ID)
	}
	short, cancel := context.WithTimeout(ctx, proposeTimeout/2)
	defer cancel()
	if err := n.ReadIndex(short); err == nil {
		return nil,
			errors.New("there is a quorum, so there is nothing to recover; remove dead masters with salt-run " +
				"cluster.remove")
	}
	if near, all, _ := n.answering(ctx, ""); near > all/2 {
		return nil,
			fmt.Errorf("nothing done: %d of %d voters answer, so they may elect a leader, and would then be a second "+
				"cluster. Wait until they have one; if they get none, stop all masters but this one, and repeat it",
				near, all)
	}
	if confirm != c.ClusterID {
		return nil,
			fmt.Errorf("nothing done yet. This makes %s the whole cluster and gives up %s for good: keys and members that only those had acknowledged are lost, "+
				"and none of them may ever run again with its data directory. Try to bring a majority back first. "+
				"If they are lost, type the cluster_id to go on: salt-run cluster.recover confirm=%s",
				n.self.ID, strings.Join(lost, ", "), c.ClusterID)
	}
	var uuid [16]byte
	if _, err := rand.Read(uuid[:]); err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	if err := writeJSON(filepath.Join(n.cfg.DataDir, recoveryFile),
		recovery{hex.EncodeToString(uuid[:])}); err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	n.log.Warn("recovery ordered: this master becomes the whole cluster", "peer", lost)
	time.AfterFunc(reopenAfter, func() { n.stop(ErrReopen) })
	return lost, nil
}

// recoverRaft runs before raft starts. If recovery was ordered it makes this master the only voter.
// It reports whether the state must be read again.
func (n *Node) recoverRaft(conf *raft.Config, logs raft.LogStore, stable raft.StableStore,
	snapshots raft.SnapshotStore, trans raft.Transport) (bool, error) {
	var r recovery
	path := filepath.Join(n.cfg.DataDir, recoveryFile)
	ordered, err := readJSON(path, &r)
	if err != nil || !ordered {
		return false, err
	}
	if c, _ := n.state.Cluster(); c.UUID == r.UUID {
		return false, n.recovered()
	}
	n.recovering = r.UUID
	scratch := newMachine(fsm.New(), newFeed(), nil)
	err = raft.RecoverCluster(conf, scratch, logs, stable, snapshots, trans,
		raft.Configuration{Servers: []raft.Server{{
			Suffrage: raft.Voter, ID: raft.ServerID(n.self.Node), Address: n.raftAddr(n.self),
		}}})
	if err := errors.Join(err, scratch.failure()); err != nil {
		return false, fmt.Errorf("recover raft: %w", err)
	}
	return true, nil
}

// beginAnew, on the leader, makes the recovered state that of a cluster with one member.
func (n *Node) beginAnew(ctx context.Context) error {
	if n.recovering == "" {
		return nil
	}
	if err := n.do(ctx, &fsm.Recover{Node: n.self.Node, UUID: n.recovering,
		At: n.utc()}); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	if err := n.recovered(); err != nil {
		return err
	}
	n.log.Warn("recovered: this master is now the whole cluster; other masters join it with empty data directories",
		"uuid", n.recovering)
	n.recovering = ""
	return nil
}

func (n *Node) recovered() error {
	if err := os.Remove(filepath.Join(n.cfg.DataDir, recoveryFile)); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("end recovery: %w", err)
	}
	return nil
}
