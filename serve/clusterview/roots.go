package clusterview

import (
	"context"
	"strings"

	"clustermaster/cluster"
	"clustermaster/salt/runner"
	"clustermaster/statesync"
	"clustermaster/value"
)

// Roots shows and syncs file_roots and pillar_roots. Store is nil on a master that stands alone.
type Roots struct {
	Store *statesync.Store
	Heads statesync.Heads
}

var _ runner.RootsSync = Roots{}

// Clustered implements runner.RootsSync, as do the next two.
func (s Roots) Clustered() bool { return s.Store != nil }

func (s Roots) SyncRoots(ctx context.Context, req runner.RootsRequest,
	watch func(runner.RootsProgress)) ([]runner.RootsView, error) {
	trees, err := statesync.ParseTrees(req.Roots)
	if err != nil {
		return nil, err
	}
	results, err := s.Store.Sync(ctx, statesync.Request{Trees: trees, Env: req.Saltenv,
		Force: req.Force, Test: req.Test},
		func(tree statesync.Tree, node string, p statesync.Progress) {
			watch(runner.RootsProgress{Tree: tree.String(), Peer: node, Bytes: p.Bytes,
				BytesTotal: p.BytesTotal, Items: p.Items, ItemsTotal: p.ItemsTotal})
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

func (s Roots) RootsStatus(ctx context.Context, roots string) ([]runner.RootsView, error) {
	trees, err := statesync.ParseTrees(roots)
	if err != nil {
		return nil, err
	}
	all := s.Store.Status(ctx, trees, true)
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
func (s Roots) view(tree statesync.Tree) runner.RootsView {
	head, _ := s.Heads.Head(tree)
	return runner.RootsView{Tree: tree.String(), Head: head.Seq, Source: head.Source, At: head.At}
}

func rootsPeer(st statesync.TreeStatus) runner.RootsPeer {
	id, _, _ := strings.Cut(st.Node, "/")
	p := runner.RootsPeer{
		ID: id, Away: st.Away, Head: st.Seq, Behind: st.Behind, Added: st.Added,
		Changed: st.Changed, Deleted: st.Deleted, Bytes: st.Bytes, Seconds: st.Seconds,
		Drifted: st.Drifted, Kept: st.Kept, KeptIn: st.KeptIn, Changes: st.Changes,
		Skipped: st.Skipped, Error: st.Error,
	}
	for _, d := range st.Drift {
		p.Drift = append(p.Drift, runner.RootsDrift{What: d.What, Item: d.Scope.String() + " " +
			d.Path})
	}
	for _, m := range st.Missing {
		p.Missing = append(p.Missing, m.String())
	}
	return p
}

// rootsMore is what cluster.members shows of a member's roots.
func rootsMore(m cluster.Member) value.Map {
	s := m.Sync
	more := value.Map{{Key: "roots_head",
		Value: value.Map{{Key: "file_roots", Value: int64(s.FileHead)},
			{Key: "pillar_roots", Value: int64(s.PillarHead)}}}}
	if s.BytesTotal > 0 {
		more = append(more, value.Pair{Key: "sync", Value: value.Map{
			{Key: "percent", Value: float64(int64(s.Percent()*10)) / 10},
			{Key: "bytes", Value: s.Bytes}, {Key: "bytes_total", Value: s.BytesTotal},
			{Key: "rate", Value: s.Rate}, {Key: "eta", Value: int64(s.ETA.Seconds() + 0.5)},
		}})
	}
	if s.Trouble != "" {
		more = append(more, value.Pair{Key: "sync_trouble", Value: s.Trouble})
	}
	return more
}
