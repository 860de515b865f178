package main

import (
	"slices"

	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/value"
)

// reload applies the changed options that may change while the master runs, and names those that it
// applied. The start decides whether users other than root reach the commands' socket: adding or
// removing publisher_acl or external_auth needs a restart.
func (r *process) reload(now *config.Options, changed []string) (applied []string, err error) {
	// The files that the options name may have changed even if the options are the same.
	later, err := r.door.Reload(settings.Door(now))
	if err != nil {
		return nil, err
	}
	applied = slices.DeleteFunc(settings.ReadByDoor(changed),
		func(name string) bool { return slices.Contains(later, name) })
	useAuth := func() {}
	if auths := settings.ReadByAuth(changed); len(auths) > 0 &&
		r.auth.Open() == (len(now.ExternalAuth) > 0) {
		wanted := settings.Auth(now)
		wanted.HashType = r.opts.HashType // others read it too: it needs a restart
		if useAuth, err = r.auth.Prepare(wanted); err != nil {
			return nil, err
		}
		applied = append(applied, auths...)
	}
	if acls := settings.ReadByACL(changed); len(acls) > 0 &&
		r.rules.Open() == (len(now.PublisherACL) > 0) {
		if err := r.rules.Replace(settings.ACL(now)); err != nil {
			return nil, err
		}
		applied = append(applied, acls...)
	}
	useAuth()
	if slices.Contains(changed, "nodegroups") {
		groups, _ := settings.Value(now.Nodegroups).(value.Map)
		r.world.SetNodegroups(groups)
		r.master.SetNodegroups(groups)
		r.pillar.SetNodegroups(groups)
		applied = append(applied, "nodegroups")
	}
	if slices.Contains(changed, "cluster_peers") && r.node.Serving() {
		// A member asks the cluster for its masters, and reads the option only when it joins.
		applied = append(applied, "cluster_peers")
	}
	return applied, nil
}
