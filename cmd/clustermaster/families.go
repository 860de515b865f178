package main

import (
	"context"
	"errors"
	"path/filepath"

	"clustermaster/cluster"
	"clustermaster/cluster/backup"
	"clustermaster/cluster/nextlevel"
	"clustermaster/config/settings"
	"clustermaster/salt/pillar"
	"clustermaster/salt/reactor"
	"clustermaster/salt/runner"
	"clustermaster/serve/auth"
	"clustermaster/serve/clusterview"
	"clustermaster/serve/fileview"
	"clustermaster/serve/master"
	"clustermaster/serve/orders"
	"clustermaster/statesync"
	"clustermaster/store/cache"
	"clustermaster/store/miniondata"
	"clustermaster/value"
	"clustermaster/wire"
)

// openFunctions makes the registries of runner and wheel functions. Each family gets only what its
// own interface asks for.
func (r *process) openFunctions() error {
	o := r.opts
	keys := &orders.Keys{
		Orders: r.keyOrders, Node: r.node,
		Clustered: o.ClusterID != "", PkiDir: o.PkiDir, SignKeyName: o.MasterSignKeyName,
	}
	r.keyLists = keys
	minions := runner.ManageDeps{Minions: r.orders, Keys: keys, Version: saltVersion}
	wheels, err := runner.NewRegistry(
		runner.KeyFamily(runner.KeyFamilyDeps{
			Keys: keys, Fingerprint: wire.Fingerprint, HashType: o.HashType,
			Local: func() (map[string]string, error) { return keys.Local(), nil },
		}),
		runner.ConnectedWheel(minions),
		runner.ConfigWheel(func() value.Map {
			m,
				_ := settings.Value(o.Values()).(value.Map)
			return m
		}),
	)
	if err != nil {
		return err
	}
	status := clusterview.Status{
		Node: r.node, Store: r.store,
		ID: o.ID, Clustered: r.port != nil, ClockLimit: o.ClusterClockLimit,
	}
	var registry *runner.Registry
	registry, err = runner.NewRegistry(
		runner.Cluster(status),
		runner.AuditTrail(clusterview.Audit{Node: r.node}),
		runner.DryRuns(status, runner.Orders(clusterOrders{r.node})),
		runner.Upgrades(runner.UpgradeDeps{
			Status: status, Members: clusterOrders{r.node},
			Restart: runner.UpgradeCommand(o.ClusterUpgradeCommand),
		}),
		runner.Doctor(status, func(ctx context.Context, nonce string, ids []string) (string,
			[]string, error) {
			return r.checkup.JSON(ctx, nonce, ids) // made after the functions
		}),
		runner.JobsAdoption(r.adoptJobs, o.CacheDir),
		runner.Rescue(r.node),
		runner.Backups(backups{r.backupFiles}),
		runner.Identity(identity{r.node, o.HashType}),
		runner.SaltCluster(o.ID),
		runner.Roots(clusterview.Roots{Store: r.roots, Heads: statesync.Agreed{Cluster: r.node}}),
		runner.Jobs(runner.JobsDeps{
			Jobs: orders.JobReader{Cache: r.jobs}, Minions: r.orders,
			Running: func() []value.Map { return r.functions.Runners.Running() },
		}),
		runner.Manage(minions),
		runner.CacheFamily(cached{r.data}, r.orders),
		runner.CacheClearing(r.data, r.orders),
		runner.CacheBanks(cacheBanks{r.banks}, o.CacheDir),
		runner.Pillar(pillar.Shown{Compiler: r.pillar, Data: r.data}, r.orders),
		runner.Mine(mines(func() *master.Master { return r.master }), r.orders),
		runner.Fileserver(fileview.Files{Server: r.files, Git: r.git, Changed: r.fileChanges}),
		runner.Git(r.gitView()),
		runner.Pushed(fileview.Pushed{Files: r.pushed, Dir: filepath.Join(o.CacheDir, "minions")}, r.orders),
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
		runner.Auth(tokenMaker{r.auth}),
		runner.OnMaster(r.onMaster()),
		runner.Matching(r.orders),
		runner.ReactorFamily(reactor.Admin{Reactor: r.reactor, Agreed: r.reactions}),
		runner.Python(r.hosted),
		runner.Test(),
		nextlevel.Functions(r.node, r.port),
	)
	if err != nil {
		return err
	}
	deps := runner.Deps{ID: o.ID, Events: r.bus, NewJID: r.newJID, Log: r.log}
	if o.RunnerReturns {
		deps.Store = r.orders
	}
	r.functions.Runners = runner.New(runner.RunnerClient, registry, deps)
	r.functions.Wheels = runner.New(runner.WheelClient, wheels, deps)
	return nil
}

// clusterOrders passes operators' orders to the cluster.
type clusterOrders struct{ *cluster.Node }

func (o clusterOrders) Remove(ctx context.Context, peer string,
	keepSecret bool) (runner.RemovalView, error) {
	r, err := o.Node.Remove(ctx, peer, keepSecret)
	return runner.RemovalView{ID: r.Member.ID, Secret: r.Secret, Unconfirmed: r.Unconfirmed,
		Warnings: r.Warnings}, err
}

// identity hands over the cluster's own key.
type identity struct {
	node     *cluster.Node
	hashType string // of fingerprints
}

func (i identity) ExportKey(ctx context.Context, dir string) (files []string, fingerprint string,
	err error) {
	return i.node.ExportKey(ctx, dir, i.hashType)
}

// backups writes and reads files for the family cluster.
type backups struct{ files *backup.Files }

func (b backups) Backup(ctx context.Context, path, passphrase string, jobs bool) (runner.BackupView,
	error) {
	v, err := b.files.Backup(ctx, path, passphrase, jobs)
	return runner.BackupView(v), err
}

func (b backups) Restore(ctx context.Context, path, passphrase string, jobs,
	test bool) (runner.BackupView, error) {
	v, err := b.files.Restore(ctx, path, passphrase, jobs, test)
	return runner.BackupView(v), err
}

// cacheBanks shows the cache to the family cache.
type cacheBanks struct{ *cache.Cache }

func (c cacheBanks) Migrate(ctx context.Context, cachedir, bank string, dry bool) (map[string]int,
	int, error) {
	done, err := c.Cache.Migrate(ctx, cachedir, bank, dry)
	return done.Keys, done.Errors, err
}

// cached shows minions' data to the family cache.
type cached struct{ *miniondata.Data }

func (c cached) Mine(ctx context.Context, id string) (value.Map, bool, error) {
	m, err := c.Data.Mine(ctx, id)
	return m, m != nil, err
}

// mines reads mines for the family mine.
type mines func() *master.Master

func (m mines) MineGet(ctx context.Context, tgt, fun any, tgtType string) (value.Map, error) {
	return m().MineGet(ctx, "", tgt, fun, tgtType)
}

// tokenMaker makes tokens for the family auth.
type tokenMaker struct{ *auth.Auth }

func (t tokenMaker) MakeToken(ctx context.Context, creds value.Map) (value.Map, bool, error) {
	token, err := t.Auth.MakeToken(ctx, "salt-run", creds)
	if errors.Is(err, auth.ErrRefused) {
		return nil, false, nil
	}
	return token, err == nil, err
}
