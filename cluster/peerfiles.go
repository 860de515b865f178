package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/store/durable"
)

// peerIndexFile, beside the files, says which of them were written, and as of which change.
const peerIndexFile = ".clustermaster_export"

// PeerFiles keeps the folder peers/ of a cluster_pki_dir equal to the members, in one direction:
// <id>.pub holds the public part of each member's node key. Raft decides, with one exception, which
// is how Salt's manual removes a peer: a file that was deleted while this master was stopped is an
// order to remove that peer.
type PeerFiles struct {
	node *Node
	dir  string
	log  *slog.Logger

	mu    sync.Mutex // guards all below, and the files
	index peerIndex
	gone  string // id whose file was deleted; not written again until that is decided
}

// peerIndex records what was written.
type peerIndex struct {
	UUID  string            `json:"uuid"`  // of the cluster
	Index uint64            `json:"index"` // Raft index of the change that led to it
	Peers map[string]string `json:"peers"` // id to node
}

// NewPeerFiles makes dir and looks for a missing file. Register Follow with OnApply and call Run
// once.
func NewPeerFiles(n *Node, dir string, log *slog.Logger) (*PeerFiles, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &PeerFiles{node: n, dir: dir, log: log.With("component", "cluster")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("export peers: %w", err)
	}
	known, err := readJSON(filepath.Join(dir, peerIndexFile), &p.index)
	if err != nil {
		p.log.Warn("index of exported peers can't be read; no peer is removed for a missing file, and all files "+
			"are written again", "err", err)
		known, p.index = false, peerIndex{}
	}
	if p.index.Peers == nil {
		p.index.Peers = make(map[string]string)
	}
	if !known {
		return p, nil
	}
	var missing []string
	for id := range p.index.Peers {
		if _, err := os.Lstat(p.path(id)); errors.Is(err, fs.ErrNotExist) && id != n.self.ID {
			missing = append(missing, id)
		}
	}
	switch len(missing) {
	case 0:
	case 1:
		p.gone = missing[0]
	default:
		slices.Sort(missing)
		p.log.Warn("several peers' files are missing, which is not an order to remove them; the files are "+
			"written again; to remove a peer use salt-run cluster.remove", "peer", missing, "dir", dir)
	}
	return p, nil
}

func (p *PeerFiles) path(id string) string { return filepath.Join(p.dir, id+".pub") }

// Follow handles a change; register it with Node.OnApply.
func (p *PeerFiles) Follow(index uint64, c fsm.Change) {
	if !c.Restored && len(c.Added) == 0 && len(c.Removed) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.sync(index); err != nil {
		p.log.Warn("peers not exported to files; the cluster works without the files", "dir", p.dir,
			"err", err)
	}
}

// sync writes the files that differ, then the index. It deletes a file before its entry in the
// index and adds it before. The caller holds mu.
func (p *PeerFiles) sync(index uint64) error {
	c, founded := p.node.state.Cluster()
	if !founded || c.UUID == p.index.UUID && index < p.index.Index {
		// after a restart the state may be older than the files, until the leader reports newer
		// changes
		return nil
	}
	next := make(map[string]string)
	var errs []error
	for _, m := range p.node.state.Members() {
		if m.ID == p.gone {
			next[m.ID] = p.index.Peers[m.ID]
			continue
		}
		if m.Pub == "" {
			continue // the member has not reported its key yet
		}
		if have, err := os.ReadFile(p.path(m.ID)); err != nil || string(have) != m.Pub {
			if err := durable.WriteFile(p.path(m.ID), []byte(m.Pub)); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		next[m.ID] = m.Node
	}
	for id := range p.index.Peers {
		if _, stays := next[id]; stays {
			continue
		}
		if err := os.Remove(p.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if !maps.Equal(next, p.index.Peers) || c.UUID != p.index.UUID {
		p.index = peerIndex{UUID: c.UUID, Index: index, Peers: next}
		errs = append(errs, writeJSON(filepath.Join(p.dir, peerIndexFile), p.index))
	}
	return errors.Join(errs...)
}

// Run removes the peer whose file was deleted, once it can ask a leader, and returns when ctx ends.
func (p *PeerFiles) Run(ctx context.Context) error {
	tick := time.NewTicker(memberPause)
	defer tick.Stop()
	trouble := &complaint{}
	for p.gone != "" {
		if p.node.Serving() {
			done, err := p.removeGone(ctx)
			if err != nil && ctx.Err() == nil {
				trouble.say(p.node,
					"peer whose file was deleted not removed yet, trying again", err)
			}
			if done {
				break
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// removeGone decides about the peer whose file is missing. Done reports that it has decided.
func (p *PeerFiles) removeGone(ctx context.Context) (done bool, err error) {
	if err := p.node.ReadIndex(ctx); err != nil {
		return false, err
	}
	p.mu.Lock()
	id, node := p.gone, p.index.Peers[p.gone]
	p.mu.Unlock()
	if m, ok := p.node.state.MemberByID(id); ok && m.Node == node {
		p.log.Warn("file of a peer was deleted while this master was stopped: removing that peer",
			"peer", id, "dir", p.dir)
		r, err := p.node.Remove(ctx, id, true)
		switch {
		case errors.Is(err, ErrNoQuorum):
			return false, err
		case err != nil:
			p.log.Error("peer not removed though its file was deleted; the file is written again",
				"peer", id, "err", err)
		default:
			p.log.Warn("peer removed; it still knows cluster_secret, which only salt-run cluster.rotate_secret changes",
				"peer", id, "warnings", r.Warnings)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = ""
	return true, p.sync(p.node.state.AppliedIndex())
}
