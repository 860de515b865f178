package runner

import (
	"context"
	"errors"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Hints that name what replaces Salt's named rings and their upkeep.
const (
	oneRing = "every job and all minion data are on one ring of all members, with copies on several masters; see " +
		"salt-run cluster.ring_info"
	noShed = "a master drops what it does not own as soon as the new owners have it; see salt-run cluster.ring_info"
	noPull = "every master reads jobs and minion data of all others, and a new one is filled automatically; see " +
		"salt-run cluster.ring_info, and cluster.sync_roots for files"
	noMove = "jobs are on the ring of all masters, whatever master_job_cache says; those of an earlier Salt " +
		"master stay below its cachedir and can be read there"
)

// SaltCluster holds the functions of Salt's family cluster whose work is automatic here, so that
// scripts get an answer. Read-only functions answer in Salt's shape; an order that can't be
// followed fails with an error that says what to use.
func SaltCluster(id string) []Function {
	answer := func(name, doc string, m value.Map, params ...function.Param) Function {
		return Function{Name: name, Params: params, Doc: doc,
			Run: func(_ context.Context, c *Call) (any, error) {
				out := append(value.Map(nil), m...)
				for i, p := range out {
					if name, ok := p.Value.(function.Param); ok { // the value that the caller gave
						out[i].Value = c.Arg(name.Name)
					}
				}
				return out, nil
			}}
	}
	refuse := func(name string, params ...function.Param) Function {
		return Function{Name: name, Params: params, Doc: "Not needed here: " + oneRing + ".",
			Run: func(context.Context, *Call) (any, error) {
				return nil, errors.New("nothing done: " + oneRing)
			}}
	}
	none := []any{}
	shed := []function.Param{function.Need("ring"), function.Opt("banks", nil),
		function.Opt("subbank_template", nil), function.Opt("driver", nil), function.Opt("dry_run",
			false)}
	skipped := value.Map{
		{Key: "status", Value: "skipped"}, {Key: "reason", Value: noShed},
		{Key: "ring", Value: function.Param{Name: "ring"}}, {Key: "dropped", Value: int64(0)},
		{Key: "kept", Value: int64(0)}, {Key: "subbanks_dropped", Value: int64(0)},
		{Key: "dry_run", Value: function.Param{Name: "dry_run"}},
	}
	return []Function{
		answer("cluster.rings", "List named rings: there are none, because "+oneRing+".", value.Map{
			{Key: "node_id", Value: id}, {Key: "rings", Value: value.Map{}},
			{Key: "active_rings", Value: none}, {Key: "registry_version", Value: int64(-1)},
			{Key: "note", Value: oneRing},
		}),
		answer("cluster.routes", "List routes of data types to named rings: there are none, because "+
			oneRing+".", value.Map{
			{Key: "node_id", Value: id}, {Key: "routes", Value: value.Map{}},
			{Key: "routing_version", Value: int64(-1)}, {Key: "drop_stats", Value: value.Map{}},
			{Key: "note", Value: oneRing},
		}),
		refuse("cluster.ring_create", function.Need("name"), function.Need("voters")),
		refuse("cluster.ring_destroy", function.Need("name")),
		refuse("cluster.ring_set", function.Opt("name", nil), function.Opt("members", nil),
			function.Opt("replicas", nil)),
		refuse("cluster.route_set", function.Need("data_type"), function.Need("ring")),
		refuse("cluster.route_clear", function.Need("data_type")),
		answer("cluster.shed_unowned", "Not needed here: "+noShed+".", skipped, shed...),
		answer("cluster.shed_unowned_all", "Not needed here: "+noShed+".", value.Map{
			{Key: "fan_out", Value: value.Map{{Key: "status", Value: "skipped"},
				{Key: "reason", Value: noShed}}},
			{Key: "local", Value: value.Map{{Key: "status", Value: "skipped"},
				{Key: "reason", Value: noShed}, {Key: "dropped", Value: int64(0)},
				{Key: "kept", Value: int64(0)}}},
		}, shed...),
		answer("cluster.shed_status", "Not needed here: "+noShed+".",
			value.Map{{Key: "status", Value: "missing"}, {Key: "path", Value: nil},
				{Key: "reason", Value: noShed}}),
		answer("cluster.collect_from_peers", "Not needed here: "+noPull+".",
			value.Map{{Key: "status", Value: "skipped"}, {Key: "reason", Value: noPull}},
			function.Opt("channels", nil), function.Opt("banks", nil)),
		answer("cluster.migrate_jobs_to_cache", "Not needed here: "+noMove+".", value.Map{
			{Key: "status", Value: "skipped"}, {Key: "reason", Value: noMove},
			{Key: "scanned", Value: int64(0)}, {Key: "migrated", Value: int64(0)},
			{Key: "skipped", Value: int64(0)}, {Key: "returns_migrated", Value: int64(0)},
			{Key: "dry_run", Value: function.Param{Name: "dry_run"}},
			{Key: "jobs_root", Value: nil},
		}, function.Opt("dry_run", false)),
	}
}
