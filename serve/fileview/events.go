package fileview

import (
	"clustermaster/serve/fileserver"
	"clustermaster/serve/gitfs"
	"clustermaster/value"
)

// Events tell of changed files, with fileserver_events.
type Events struct {
	On    bool
	Leads func() bool // whether this master leads the cluster
	Fire  func(tag string, data value.Map)
}

// Roots fires the event of an update of file_roots: once in the cluster, for every master finds the
// same in its own tree.
func (e Events) Roots(c fileserver.Changes) {
	if e.On && e.Leads() {
		e.Fire("salt/fileserver/roots/update", c.Data())
	}
}

// Git fires the event of new commits. Only the master that published them calls it.
func (e Events) Git() {
	if e.On {
		e.Fire("salt/fileserver/gitfs/update",
			value.Map{{Key: "changed", Value: true}, {Key: "backend", Value: gitfs.RoleFiles}})
	}
}
