package main

import (
	"clustermaster/cluster/fsm"
	"clustermaster/config/settings"
	"clustermaster/serve/fileserver"
	"clustermaster/serve/gitfs"
	"clustermaster/serve/minionfs"
)

// openGit opens the file server's back ends: pushed files, and git if an option names a remote.
func (r *process) openGit() error {
	var backends []fileserver.Backend
	if o, on := settings.Minionfs(r.opts); on {
		o.Ignored = r.files.Ignored
		pushed, err := minionfs.New(o, r.pushed)
		if err != nil {
			return err
		}
		backends = append(backends, pushed)
	}
	if o, some := settings.Git(r.opts); some {
		o.Low, o.Room, o.Changed = func() error { return r.disk.Refuse("git", "") }, r.disk.Room, r.fileEvents().Git
		var peers gitfs.Peers
		if r.port != nil {
			peers = r.node.Peers()
		}
		store, problems, err := gitfs.New(o, gitfs.Agreed{Cluster: r.node}, peers, r.log, r.reg)
		if err != nil {
			return err
		}
		for _, p := range problems {
			r.log.Error(p.Error(), "component", "gitfs")
		}
		r.git = store
		backends = append(backends, store)
		r.node.OnApply(func(_ uint64, c fsm.Change) {
			if c.Git || c.Restored {
				store.Follow()
			}
		})
		if r.port != nil {
			r.port.OnUp(func(string) { store.Kick() })
		}
	}
	r.files.Use(r.opts.FileserverBackend, backends...)
	return nil
}
