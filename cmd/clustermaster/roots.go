package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"clustermaster/cluster"
	"clustermaster/cluster/fsm"
	"clustermaster/config/settings"
	"clustermaster/salt/runner"
	"clustermaster/statesync"
	"clustermaster/value"
)

// openRoots opens what keeps file_roots and pillar_roots equal on all masters. A master that stands alone has none.
func (r *rooms) openRoots() error {
	if r.port == nil {
		return nil
	}
	o := r.opts
	ro := settings.Roots(o)
	ro.OnInstalled, ro.Low = r.rootsInstalled, func() error { return r.disk.Refuse("sync", "") }
	var err error
	r.roots, err = statesync.Open(filepath.Join(o.DataDir(), "statesync"), ringPeers{r}, rootsHeads{r.node}, ro, r.log, r.reg)
	if err != nil {
		return err
	}
	r.port.OnUp(func(string) { r.roots.Kick() }) // it may be the one that a joiner copies
	r.node.OnApply(func(_ uint64, c fsm.Change) {
		if c.Roots || c.Restored || len(c.Added) > 0 {
			r.roots.Kick()
		}
	})
	return nil
}

// rootsInstalled makes minions see what was installed at once.
func (r *rooms) rootsInstalled(t statesync.Tree) {
	files := r.files
	if t == statesync.PillarRoots {
		files = r.items
	}
	if files != nil { // an install that a crash cut short is finished before there are any
		files.ClearListCache("")
	}
}

// syncState is what other masters are told of this one's roots.
func (r *rooms) syncState() cluster.SyncState {
	if r.roots == nil {
		return cluster.SyncState{}
	}
	joining, p := r.roots.Joining()
	s := cluster.SyncState{Joining: joining, Bytes: p.Bytes, BytesTotal: p.BytesTotal, Rate: p.Rate, ETA: p.ETA(), Trouble: r.roots.Trouble()}
	s.FileHead, s.PillarHead = r.roots.Heads()
	return s
}

// rootsHeads are the heads in the replicated state.
type rootsHeads struct{ n *cluster.Node }

var _ statesync.Heads = rootsHeads{}

func (h rootsHeads) Head(t statesync.Tree) (statesync.Head, bool) {
	head, ok := h.n.State().RootsHead(uint8(t))
	return statesync.Head{
		Tree: t, Seq: head.Seq, Manifest: head.Manifest, Size: head.Size, Source: head.Source, Force: head.Force, At: head.At,
	}, ok
}

func (h rootsHeads) Publish(ctx context.Context, head statesync.Head) error {
	r, _, err := h.n.Propose(ctx, &fsm.SetRootsHead{Head: fsm.RootsHead{
		Tree: uint8(head.Tree), Seq: head.Seq, Manifest: head.Manifest, Size: head.Size, Source: head.Source, Force: head.Force, At: head.At,
	}})
	switch {
	case err != nil:
		return err
	case r.Refused == fsm.RefusedStale:
		return statesync.ErrStale
	case r.Refused != "":
		return fmt.Errorf("refused: %s", r.Refused)
	}
	return nil
}

func (h rootsHeads) Refresh(ctx context.Context) error { return h.n.ReadIndex(ctx) }
func (h rootsHeads) Leader() (node string, ok bool)    { return h.n.Leader() }
func (h rootsHeads) InRing() bool                      { return h.n.InRing() }

// rootsSync passes operators' commands about roots on.
type rootsSync struct{ r *rooms }

var _ runner.RootsSync = rootsSync{}

// Clustered implements runner.RootsSync, as do the next two.
func (s rootsSync) Clustered() bool { return s.r.roots != nil }

func (s rootsSync) SyncRoots(ctx context.Context, req runner.RootsRequest, watch func(runner.RootsProgress)) ([]runner.RootsView, error) {
	trees, err := statesync.ParseTrees(req.Roots)
	if err != nil {
		return nil, err
	}
	results, err := s.r.roots.Sync(ctx, statesync.Request{Trees: trees, Env: req.Saltenv, Force: req.Force, Test: req.Test},
		func(tree statesync.Tree, node string, p statesync.Progress) {
			watch(runner.RootsProgress{Tree: tree.String(), Peer: node, Bytes: p.Bytes, BytesTotal: p.BytesTotal, Items: p.Items, ItemsTotal: p.ItemsTotal})
		})
	var views []runner.RootsView
	for _, r := range results {
		v := s.view(r.Tree)
		v.Published, v.Items, v.Bytes = r.Published, r.Items, r.Bytes
		for i := range r.Reports {
			p := rootsPeer(statesync.TreeStatus{Report: r.Reports[i]})
			p.Source = i == 0
			v.Peers = append(v.Peers, p)
		}
		views = append(views, v)
	}
	return views, err
}

func (s rootsSync) RootsStatus(ctx context.Context, roots string) ([]runner.RootsView, error) {
	trees, err := statesync.ParseTrees(roots)
	if err != nil {
		return nil, err
	}
	all := s.r.roots.Status(ctx, trees, true)
	var views []runner.RootsView
	for _, tree := range trees {
		v := s.view(tree)
		for _, st := range all {
			if st.Tree == tree {
				v.Peers = append(v.Peers, rootsPeer(st))
			}
		}
		views = append(views, v)
	}
	return views, nil
}

// view has what the head says of a tree.
func (s rootsSync) view(tree statesync.Tree) runner.RootsView {
	head, _ := rootsHeads{s.r.node}.Head(tree)
	return runner.RootsView{Tree: tree.String(), Head: head.Seq, Source: head.Source, At: head.At}
}

func rootsPeer(st statesync.TreeStatus) runner.RootsPeer {
	id, _, _ := strings.Cut(st.Node, "/")
	p := runner.RootsPeer{
		ID: id, Away: st.Away, Head: st.Seq, Behind: st.Behind, Added: st.Added, Changed: st.Changed, Deleted: st.Deleted, Bytes: st.Bytes, Seconds: st.Seconds,
		Drifted: st.Drifted, Kept: st.Kept, KeptIn: st.KeptIn, Changes: st.Changes, Skipped: st.Skipped, Error: st.Error,
	}
	for _, d := range st.Drift {
		p.Drift = append(p.Drift, runner.RootsDrift{What: d.What, Item: d.Scope.String() + " " + d.Path})
	}
	for _, m := range st.Missing {
		p.Missing = append(p.Missing, m.String())
	}
	return p
}

// rootsMore is what cluster.members shows of a member's roots.
func rootsMore(m cluster.Member) value.Map {
	s := m.Sync
	more := value.Map{{Key: "roots_head", Value: value.Map{{Key: "file_roots", Value: int64(s.FileHead)}, {Key: "pillar_roots", Value: int64(s.PillarHead)}}}}
	if s.BytesTotal > 0 {
		more = append(more, value.Pair{Key: "sync", Value: value.Map{
			{Key: "percent", Value: float64(int64(s.Percent()*10)) / 10}, {Key: "bytes", Value: s.Bytes}, {Key: "bytes_total", Value: s.BytesTotal},
			{Key: "rate", Value: s.Rate}, {Key: "eta", Value: int64(s.ETA.Seconds() + 0.5)},
		}})
	}
	if s.Trouble != "" {
		more = append(more, value.Pair{Key: "sync_trouble", Value: s.Trouble})
	}
	return more
}
