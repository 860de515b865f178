package main

import (
	"context"

	"clustermaster/cluster/nextlevel"
	"clustermaster/config/settings"
	"clustermaster/salt/pillar"
	"clustermaster/salt/reactor"
	"clustermaster/salt/runner"
	"clustermaster/serve/auth"
	"clustermaster/serve/clusterview"
	"clustermaster/serve/fileview"
	"clustermaster/serve/orders"
	"clustermaster/statesync"
	"clustermaster/store/jobcache/localcache"
	"clustermaster/value"
	"clustermaster/wire"
)

// openFunctions makes the registries of runner and wheel functions. Each family gets only what its
// own interface needs.
func (r *process) openFunctions() error {
	o := r.opts
	keys := &orders.Keys{
		Orders: r.keyOrders, Node: r.node, TakeIn: r.export.TakeIn,
		Clustered: o.ClusterID != "", ID: o.ID, PkiDir: o.PkiDir, SignKeyName: o.MasterSignKeyName,
	}
	r.keyLists = keys
	minions := runner.ManageDeps{Minions: r.orders, Keys: keys, Version: saltVersion}
	wheels, err := runner.NewRegistry(
		runner.KeyFamily(runner.KeyFamilyDeps{
			Keys: keys, Fingerprint: wire.Fingerprint, HashType: o.HashType,
			Generate: orders.GenerateKey, Local: keys.Own,
		}),
		runner.ConnectedWheel(minions),
		runner.ConfigWheel(func() value.Map { m, _ := settings.Value(o.Values()).(value.Map); return m }),
	)
	if err != nil {
		return err
	}
	status := clusterview.Status{
		Node: r.node, Store: r.store,
		ID: o.ID, Clustered: r.port != nil, ClockLimit: o.ClusterClockLimit,
	}
	files := fileview.Files{Server: r.files, Git: r.git, Changed: r.fileEvents().Roots}
	var registry *runner.Registry
	registry, err = runner.NewRegistry(
		runner.Cluster(status),
		runner.AuditTrail(clusterview.Audit{Node: r.node}),
		runner.DryRuns(status, runner.Orders(clusterview.Orders{Node: r.node})),
		runner.Upgrades(runner.UpgradeDeps{
			Status: status, Members: clusterview.Orders{Node: r.node},
			Restart: runner.UpgradeCommand(o.ClusterUpgradeCommand),
		}),
		runner.Doctor(status, func(ctx context.Context, nonce string, ids []string) (string,
			[]string, error) {
			return r.checkup.JSON(ctx, nonce, ids) // made after the functions
		}),
		runner.JobsAdoption(r.adoptJobs, o.CacheDir),
		runner.Return(r.banks, localcache.Exporter{Opts: settings.LocalCache(o), Jobs: r.jobs, Log: r.log}, o.CacheDir),
		runner.Rescue(r.node),
		runner.Backups(clusterview.Backups{Files: r.backupFiles}),
		runner.Identity(clusterview.Identity{Node: r.node, HashType: o.HashType}),
		runner.SaltCluster(o.ID),
		runner.Roots(clusterview.Roots{Store: r.roots, Heads: statesync.Agreed{Cluster: r.node}}),
		runner.Jobs(runner.JobsDeps{
			Jobs: r.databases().Reader(settings.Returners(o).Source()), Other: r.databases().Other,
			Minions: r.orders,
			Running: func() []value.Map { return r.functions.Runners.Running() },
		}),
		runner.Manage(minions),
		runner.CacheFamily(r.data, r.orders),
		runner.CacheClearing(r.data, r.orders),
		runner.CacheBanks(r.banks, o.CacheDir),
		runner.Pillar(pillar.Shown{Compiler: r.pillar, Data: r.data}, r.orders),
		runner.Mine(func(ctx context.Context, tgt, fun any, tgtType string) (value.Map, error) {
			return r.master.MineGet(ctx, "", tgt, fun, tgtType) // made after the functions
		}, r.orders),
		runner.Fileserver(files), runner.GitLocks(files),
		runner.Git(fileview.Git{Store: r.git, ID: o.ID}),
		runner.Pushed(fileview.Pushed{Files: r.pushed, Dir: settings.MinionFiles(o)}, r.orders),
		runner.Config(func() value.Map { m, _ := settings.Value(o.Extra).(value.Map); return m }),
		runner.Documentation(
			func() *runner.Registry { return registry },
			func() *runner.Registry { return wheels },
		),
		runner.State(r.orders),
		runner.OrchestrationFamily(r.newOrchestrations()),
		runner.Events(func(tag string, data value.Map) { r.bus.Fire(tag, data) }),
		runner.PKI(keys, func(context.Context) error { return r.keys.WriteMmap(o.KeysDir()) }),
		runner.Salt(r.orders),
		runner.Auth(auth.Run{Auth: r.auth, Dir: o.TokenDir}),
		runner.OnMaster(r.onMaster()),
		runner.Matching(r.orders),
		runner.ReactorFamily(reactor.Admin{Reactor: r.reactor, Agreed: r.reactions}),
		runner.Python(r.everywhere()),
		runner.Test(),
		nextlevel.Functions(r.node, r.port),
	)
	if err != nil {
		return err
	}
	deps := runner.Deps{ID: o.ID, Events: r.bus, NewJID: r.newJID, Log: r.log,
		Settle: r.returners.Settle, Trace: r.traces.Call}
	if o.RunnerReturns {
		deps.Store = r.orders
	}
	deps.Others = r.hosted.Runners
	r.functions.Runners = runner.New(runner.RunnerClient, registry, deps)
	deps.Others = r.hosted.Wheels
	r.functions.Wheels = runner.New(runner.WheelClient, wheels, deps)
	r.python.Native("runner", r.pythonOrders().Natives())
	r.python.Native("returner", orders.JobCache)
	return nil
}
