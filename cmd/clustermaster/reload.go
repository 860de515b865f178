package main

import (
	"errors"
	"slices"

	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/value"
)

// reload names the changed options that may change while the master runs; use puts them in force.
// The start decides whether users other than root reach the commands' socket: adding or removing
// publisher_acl or external_auth needs a restart.
func (r *process) reload(now *config.Options, changed []string) (names []string, use []func(),
	err error) {
	add := func(prepared func(), failed error, options ...string) {
		names, use, err = append(names, options...), append(use, prepared), errors.Join(err, failed)
	}
	// The files that the options name may have changed even if the options are the same.
	later, useDoor, err := r.door.Prepare(settings.Door(now))
	add(useDoor, nil, slices.DeleteFunc(settings.ReadByDoor(changed),
		func(name string) bool { return slices.Contains(later, name) })...)
	names = append(names, settings.ReadWhenNeeded(changed)...)
	if auths := settings.ReadByAuth(changed); len(auths) > 0 &&
		r.auth.Open() == (len(now.ExternalAuth) > 0) {
		wanted := settings.Auth(now)
		wanted.HashType = r.opts.HashType // others read it too: it needs a restart
		useAuth, failed := r.auth.Prepare(wanted)
		add(useAuth, failed, auths...)
	}
	if acls := settings.ReadByACL(changed); len(acls) > 0 &&
		r.rules.Open() == (len(now.PublisherACL) > 0) {
		useRules, failed := r.rules.Prepare(settings.ACL(now))
		add(useRules, failed, acls...)
	}
	if slices.Contains(changed, "nodegroups") {
		groups, _ := settings.Value(now.Nodegroups).(value.Map)
		add(func() {
			r.world.SetNodegroups(groups)
			r.master.SetNodegroups(groups)
			r.pillar.SetNodegroups(groups)
		}, nil, "nodegroups")
	}
	if slices.Contains(changed, "cluster_peers") && r.node.Serving() {
		// A member asks the cluster for its masters, and reads the option only when it joins.
		names = append(names, "cluster_peers")
	}
	return names, use, err
}
