package main

import (
	"path/filepath"

	"clustermaster/cluster"
	"clustermaster/cluster/fsm"
	"clustermaster/config/settings"
	"clustermaster/statesync"
)

// openRoots opens the store that keeps file_roots and pillar_roots equal on all masters. A
// stand-alone master has none.
func (r *process) openRoots() error {
	if r.port == nil {
		return nil
	}
	o := r.opts
	ro := settings.Roots(o)
	ro.OnInstalled, ro.Low = r.rootsInstalled, func() error { return r.disk.Refuse("sync", "") }
	var err error
	r.roots, err = statesync.Open(filepath.Join(o.DataDir(), "statesync"), r.node.Peers(),
		statesync.Agreed{Cluster: r.node}, ro, r.log, r.reg)
	if err != nil {
		return err
	}
	r.port.OnUp(func(string) { r.roots.Kick() }) // a joiner may copy that master
	r.node.OnApply(func(_ uint64, c fsm.Change) {
		if c.Roots || c.Restored || len(c.Added) > 0 {
			r.roots.Kick()
		}
	})
	return nil
}

// rootsInstalled makes installed files visible to minions at once.
func (r *process) rootsInstalled(t statesync.Tree) {
	files := r.files
	if t == statesync.PillarRoots {
		files = r.items
	}
	if files != nil { // nil while open finishes an install that a crash interrupted
		files.ClearListCache("")
	}
}

// syncState is what this master reports to the others about its roots.
func (r *process) syncState() cluster.SyncState {
	if r.roots == nil {
		return cluster.SyncState{}
	}
	joining, p := r.roots.Joining()
	joining = joining || r.git != nil && !r.node.InRing() && r.git.Behind()
	s := cluster.SyncState{Joining: joining, Bytes: p.Bytes, BytesTotal: p.BytesTotal, Rate: p.Rate,
		ETA: p.ETA(), Trouble: r.roots.Trouble()}
	s.FileHead, s.PillarHead = r.roots.Heads()
	return s
}
