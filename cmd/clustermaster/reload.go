package main

import (
	"slices"

	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/value"
)

// ofACL are the options that package acl reads.
var ofACL = []string{"publisher_acl", "publisher_acl_blacklist", "sudo_acl"}

// ofDoor are the options that health.Door reads.
var ofDoor = []string{"metrics_tls_cert", "metrics_tls_key", "metrics_client_ca", "metrics_users"}

// reload puts options in force that may change while the master runs, and names those of the
// changed ones that are. Whether others than root reach the commands' socket is decided at the
// start: publisher_acl that comes or goes needs a restart.
func (r *process) reload(now *config.Options, changed []string) (applied []string, err error) {
	// their contents may be new though the options are the same
	later, err := r.door.Reload(settings.Door(now))
	if err != nil {
		return nil, err
	}
	for _, name := range changed {
		if slices.Contains(ofDoor, name) && !slices.Contains(later, name) {
			applied = append(applied, name)
		}
	}
	acls := slices.DeleteFunc(slices.Clone(changed),
		func(name string) bool { return !slices.Contains(ofACL, name) })
	if len(acls) > 0 && r.rules.Open() == (len(now.PublisherACL) > 0) {
		if err := r.rules.Replace(settings.ACL(now)); err != nil {
			return nil, err
		}
		applied = append(applied, acls...)
	}
	if slices.Contains(changed, "nodegroups") {
		groups, _ := settings.Value(now.Nodegroups).(value.Map)
		r.world.SetNodegroups(groups)
		r.master.SetNodegroups(groups)
		r.pillar.SetNodegroups(groups)
		applied = append(applied, "nodegroups")
	}
	if slices.Contains(changed, "cluster_peers") && r.node.Serving() {
		// a member asks the cluster for its masters, and reads the option when it joins
		applied = append(applied, "cluster_peers")
	}
	return applied, nil
}
