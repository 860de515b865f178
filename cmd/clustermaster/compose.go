package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"

	"clustermaster/cluster"
	"clustermaster/cluster/backup"
	"clustermaster/cluster/fsm"
	"clustermaster/cluster/nextlevel"
	"clustermaster/config"
	"clustermaster/config/saltlog"
	"clustermaster/config/settings"
	"clustermaster/keystore"
	"clustermaster/salt/engine"
	"clustermaster/salt/hosted"
	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/reactor"
	"clustermaster/salt/render"
	"clustermaster/salt/returner"
	"clustermaster/salt/schedule"
	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/serve/checkup"
	"clustermaster/serve/daemon"
	"clustermaster/serve/event"
	"clustermaster/serve/event/localbus"
	"clustermaster/serve/fileserver"
	"clustermaster/serve/gitfs"
	"clustermaster/serve/health"
	"clustermaster/serve/master"
	"clustermaster/serve/operator"
	"clustermaster/serve/orders"
	"clustermaster/serve/traces"
	"clustermaster/serve/userkeys"
	"clustermaster/statesync"
	"clustermaster/store/cache"
	"clustermaster/store/datadisk"
	"clustermaster/store/jobcache"
	"clustermaster/store/jobcache/localcache"
	"clustermaster/store/miniondata"
	"clustermaster/store/outbox"
	"clustermaster/store/ringstore"
	"clustermaster/store/seal"
	"clustermaster/store/uploads"
	"clustermaster/transport/minion"
	"clustermaster/transport/peer"
	"clustermaster/value"
)

// process is one master's process: the parts of all packages, made and connected.
type process struct {
	opts  *config.Options
	log   *slog.Logger
	reg   registry
	began time.Time
	clock func() time.Time // this machine's; node.Now is the cluster's

	seal      *seal.Key // nil leaves the files in DataDir unencrypted
	systemd   *health.Systemd
	listening chan struct{} // closed once the minion ports are open for the first time
	opened    sync.Once     // closes it

	port        *peer.Port   // nil when stand-alone
	rpc         *grpc.Server // nil when stand-alone
	node        *cluster.Node
	keys        *keystore.Store
	export      *keystore.Exporter // nil with a shared cluster_pki_dir
	peers       *cluster.PeerFiles // nil when stand-alone or with a shared cluster_pki_dir
	roots       *statesync.Store   // nil when stand-alone
	store       *ringstore.Store
	disk        *datadisk.Disk
	folders     *datadisk.Folders
	backups     *backup.Schedule // nil without backup_dir
	backupFiles *backup.Files
	jobs        *jobcache.Cache
	data        *miniondata.Data
	world       *miniondata.World // what targets are matched against
	pushed      *uploads.Files
	banks       *cache.Cache
	bus         *event.Bus
	outbox      *outbox.Box         // nil if no option names a returner
	returners   *returner.Returners // of the master: event_return and the like
	mesh        *event.Mesh
	traces      *traces.Traces // nil without traces_endpoint
	pub         *minion.PubServer
	req         *minion.RequestServer
	master      *master.Master
	modules     *modules.Modules
	hosted      *hosted.Functions // modules, and those of Salt's loader
	extensions  *hosted.Extensions
	engines     *engine.Engines
	python      *pythonhost.Host
	pillar      *pillar.Compiler
	files       *fileserver.Server // file_roots
	render      *render.Renderer
	items       *fileserver.Server // pillar_roots
	git         *gitfs.Store       // nil without remotes
	auth        *auth.Auth
	keyOrders   *keystore.Orders
	keyLists    *orders.Keys
	orders      *orders.Jobs
	functions   *orders.Functions
	reactor     *reactor.Reactor
	reactions   *reactor.Agreed
	sched       *schedule.Schedule
	checkup     *checkup.Exchange
	sock        *operator.Server
	local       *localbus.Server

	givenBack prometheus.Counter // times that memory was
	door      *health.Door       // of the readers of metrics

	rules    *acl.Rules
	userKeys *userkeys.Keys    // nil without enable_clear_commands
	onDisk   *localcache.Cache // nil without enable_clear_commands
}

// registry holds every package's metrics.
type registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// saltMaster is the command of the daemon.
func saltMaster(ctx context.Context, args []string) int {
	var running atomic.Pointer[process]
	return daemon.Command(ctx, args, daemon.Program{
		Versions: func(all bool) { printVersions("salt-master", all) },
		Reload: func(now *config.Options, changed []string) ([]string, []func(), error) {
			if r := running.Load(); r != nil {
				return r.reload(now, changed)
			}
			return nil, nil, errors.New("the master is starting; send SIGHUP again once it serves")
		},
		Serve: func(ctx context.Context, options func() *config.Options, found bool,
			systemd *health.Systemd, log *slog.Logger) error {
			err := serveMaster(ctx, options(), found, systemd, log, &running)
			for errors.Is(err, cluster.ErrReopen) && ctx.Err() == nil {
				err = serveMaster(ctx, options(), false, systemd, log, &running)
			}
			return err
		},
	})
}

// serveMaster makes the parts from the bottom up, and runs them until ctx ends.
func serveMaster(ctx context.Context, o *config.Options, found bool, systemd *health.Systemd,
	log *slog.Logger, running *atomic.Pointer[process]) error {
	r := newProcess(o, prometheus.NewRegistry(), systemd, log)
	log.Info("master starts", "id", o.ID, "version", Version, "interface", o.Interface)
	defer r.close()
	if err := r.open(ctx, found); err != nil {
		return err
	}
	running.Store(r)
	defer running.Store(nil)
	return r.run(ctx)
}

func newProcess(o *config.Options, reg registry, systemd *health.Systemd,
	log *slog.Logger) *process {
	reg.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &process{opts: o, log: log, reg: reg, began: time.Now(), systemd: systemd,
		clock: daemon.Clock(os.Getenv(daemon.ClockEnv)), listening: make(chan struct{})}
}

// open makes all parts. If it fails it closes the node; the caller must call close in any case.
func (r *process) open(ctx context.Context, found bool) error {
	if err := r.openDisk(); err != nil {
		return err
	}
	if err := r.openSeal(ctx); err != nil {
		return err
	}
	r.givenBack = daemon.NewGivenBack(r.reg)
	r.reg.MustRegister(saltlog.Losses(r.log))
	var err error
	if r.door, err = health.NewDoor(settings.Door(r.opts)); err != nil {
		return err
	}
	r.door.Register(r.reg)
	if r.backups, err = backup.NewSchedule(settings.Backups(r.opts), r.log, r.reg); err != nil {
		return err
	}
	if err := r.openCluster(found); err != nil {
		return err
	}
	for _, open := range []func() error{
		r.openStores, func() error { return r.openMaster(ctx) }, r.openOperator,
	} {
		if err := open(); err != nil {
			return errors.Join(err, r.node.Close())
		}
	}
	return nil
}

// close closes what open made, except the node and the ports, which run closes.
func (r *process) close() {
	if r.python != nil {
		r.python.Close()
	}
	if r.render != nil {
		r.render.Close()
	}
	if r.master != nil {
		r.master.Close()
	}
	if r.export != nil {
		r.export.Close()
	}
	if r.outbox != nil {
		r.outbox.Close()
	}
	if r.store != nil {
		r.store.Close()
	}
}

// openDisk starts to watch the disk space that the stores share.
func (r *process) openDisk() error {
	size, err := r.opts.DiskReserveSize()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.opts.DataDir(), 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	r.disk = datadisk.New(r.opts.DataDir(), size, r.log, r.reg)
	r.folders = datadisk.WatchFolders(settings.Folders(r.opts), r.log, r.reg)
	return nil
}

// openSeal reads the key of seal_key and checks that DataDir is sealed with it.
func (r *process) openSeal(ctx context.Context) error {
	o := r.opts
	var err error
	if r.seal, err = seal.Load(ctx, o.SealKey, os.Getenv); err != nil {
		return fmt.Errorf("seal_key: %w", err)
	}
	return seal.Check(o.DataDir(), r.seal, !cluster.HasState(filepath.Join(o.DataDir(), "cluster")))
}

// openCluster opens the port between peers and the Raft node on it.
func (r *process) openCluster(found bool) error {
	o := r.opts
	cfg := settings.Cluster(o)
	cfg.Version, cfg.Found, cfg.Seal = Version, found || o.FoundingOrdered(), r.seal
	cfg.Now = r.clock
	cfg.StateSync, cfg.Unfit, cfg.Writing = r.syncState, r.disk.Usable, r.disk.Write
	r.extensions = hosted.NewExtensions(settings.Modules(o).ExtensionModules)
	cfg.Extensions = r.extensions.Digest
	cfg.Alarms, cfg.LastBackup = r.folders.Beside(r.backups.Alarms), r.backups.LastGood
	cfg.OnFounded = func(ctx context.Context, n *cluster.Node) error {
		o.EndFounding()
		return r.keys.ImportDirs(ctx, r.export, o.KeysDir(), o.PkiDir)
	}
	nextlevel.Tune(&cfg)
	if !cluster.HasState(cfg.DataDir) {
		if err := o.CheckFirst(found); err != nil {
			return err
		}
	}
	var port cluster.PeerPort // nil stays nil
	if o.ClusterID != "" {
		advertise, err := o.ResolveAdvertise()
		if err != nil {
			return err
		}
		key, err := peer.LoadNodeKey(o.DataDir(), r.seal.Box("node key"))
		if err != nil {
			return err
		}
		cfg.Addr, cfg.SPKI, cfg.NodePub, cfg.Pins = advertise, key.SPKI(), key.Public(),
			cluster.NewPins()
		cfg.JoinKey = peer.JoinKey(o.ClusterSecret.Reveal(), o.ClusterID)
		pc := settings.Peer(o, advertise)
		pc.Key, pc.Pins, pc.Level, pc.Log, pc.Registerer = key, cfg.Pins, cfg.Pins.Level, r.log,
			r.reg
		r.port, err = peer.New(pc)
		if err != nil {
			return err
		}
		port = r.port
	}
	var err error
	r.node, err = cluster.Open(cfg, port, r.log, r.reg)
	return err
}

// openStores opens the stores on the Raft state and on the ring.
func (r *process) openStores() error {
	o := r.opts
	ro := settings.Ring(o)
	ro.Room, ro.Writing, ro.Now = r.disk.Usable, r.disk.Write, r.node.Now
	ro.ClockJudged, ro.Seal = r.node.ClockJudged, r.seal
	ro.Compilers = map[ringstore.Space]ringstore.Compiler{ringstore.SpaceMinions: miniondata.Questions{}}
	var err error
	r.store, err = ringstore.Open(filepath.Join(o.DataDir(), "ring"), r.node.Peers(), ro,
		r.log, r.reg)
	if err != nil {
		return err
	}
	r.node.OnApply(func(_ uint64, c fsm.Change) {
		if !c.Level && !c.Restored {
			return
		}
		if err := r.store.RaiseLevel(r.node.Level()); err != nil {
			r.log.Error("ring store stays in its old format", "err", err)
		}
	})
	r.jobs = jobcache.New(r.store, o.KeepJobsSeconds, r.node.Now, r.log)
	r.data = miniondata.New(r.store, r.log)
	r.pushed = uploads.New(r.store, r.node.Now)
	ofData, ofFiles, ofJobs := settings.Stored(o)
	r.data.Limit(ofData)
	r.pushed.Limit(ofFiles)
	r.pushed.CopyTo(settings.PushedCopies(o), r.log)
	r.jobs.Limit(ofJobs)
	r.banks = cache.New(r.store, r.data, r.log)
	if r.keys, err = keystore.New(r.node, r.log, r.reg); err != nil {
		return err
	}
	groups, _ := settings.Value(o.Nodegroups).(value.Map)
	r.world = miniondata.NewWorld(r.keys, r.data, o.MinionDataCache, groups)
	if err := r.openExports(); err != nil {
		return err
	}
	return r.openRoots()
}

// openExports starts the export of keys into folders as Salt has them.
func (r *process) openExports() error {
	o := r.opts
	if o.SharedKeys() {
		r.log.Info("cluster_pki_dir is shared (cluster_isolated_filesystem is not set): keys are read there at founding, and not written", "path", o.ClusterPkiDir)
		return nil
	}
	var err error
	if r.export, err = keystore.NewExporter(r.keys, o.KeysDir(), r.node.Founding, r.log); err != nil {
		return err
	}
	r.node.OnApply(r.export.Follow)
	if r.port == nil {
		r.node.OnApply(settings.OwnKey(o, r.node.ClusterKey, r.log).Follow)
		return nil
	}
	if r.peers, err = cluster.NewPeerFiles(r.node, filepath.Join(o.KeysDir(), "peers"),
		r.log); err != nil {
		return err
	}
	r.node.OnApply(r.peers.Follow)
	return nil
}

// openMaster makes the parts that answer minions.
func (r *process) openMaster(ctx context.Context) error {
	o := r.opts
	r.bus = event.NewBus(o.MaxEventSize, r.log, r.reg)
	if err := r.openReturners(); err != nil {
		return err
	}
	r.mesh = event.NewMesh(r.bus, r.node.NearPeers(r.began), r.log)
	files, err := daemon.OpenFilesLimit()
	if err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	lim := settings.Minions(o, daemon.MinionConnections(files))
	r.pub = minion.NewPubServer(lim, o.ZmqFiltering, r.log, r.reg)
	if r.traces, err = traces.New(settings.Traces(o, Version, r.store.Copies), r.log, r.reg); err != nil {
		return err
	}
	daemon.WarnOpenFiles(len(r.keys.AcceptedIDs()), files, r.log)
	if r.files, err = fileserver.New(settings.Files(o), r.log, r.reg); err != nil {
		return err
	}
	r.openOrders(ctx)
	if err := r.openGit(); err != nil {
		return err
	}
	if err := r.openPillars(); err != nil {
		return err
	}
	mo, err := settings.Master(o)
	if err != nil {
		return err
	}
	mo.Node = r.node.Self().Node
	if mo.MasterTops, err = r.masterTops(); err != nil {
		return err
	}
	if r.auth, err = r.newAuth(); err != nil {
		return err
	}
	r.openReactor()
	if err := r.openFunctions(); err != nil {
		return err
	}
	if err := r.openAccess(); err != nil {
		return err
	}
	r.openSchedule()
	r.openCheckup()
	deps := master.Deps{
		Keys: r.keyOrders, Cluster: r.node, Jobs: r.jobs, Data: r.data, Targets: r.world,
		Bus: r.bus, Mesh: r.mesh, Subscribers: subscribers{r.pub},
		Peers: r.node.NearPeers(r.began),
		Files: r.files, Pillars: pillars{r.pillar}, Pushed: r.pushed,
		Runner: r.functions.ForMinion,
		ACL:    r.rules, Disk: r.disk, Traces: r.traces, Clock: r.clock,
	}
	if r.returners != nil {
		deps.Kept = r.returners
	}
	if r.git != nil && len(o.GitJobFunctions) > 0 {
		deps.Commits = r.git
	}
	if r.userKeys != nil { // enable_clear_commands
		deps.UserKeys, deps.Auth, deps.Runners = r.userKeys, users{r.auth}, r.functions
		if r.onDisk, err = localcache.New(settings.LocalCache(o),
			localcache.Deps{Mesh: r.mesh, Jobs: r.jobs, Log: r.log, Reg: r.reg}); err != nil {
			return err
		}
		deps.OnDisk = r.onDisk
	}
	if r.master, err = master.New(deps, mo, r.log, r.reg); err != nil {
		return err
	}
	r.req = minion.NewRequestServer(requests{r.master}, lim, r.log, r.reg)
	if r.port != nil {
		r.rpc = grpc.NewServer(r.port.ServerOptions()...)
		r.port.RegisterRPC(r.rpc)
		r.node.RegisterRPC(r.rpc)
		r.store.RegisterRPC(r.rpc)
		r.roots.RegisterRPC(r.rpc)
		if r.git != nil {
			r.git.RegisterRPC(r.rpc)
		}
		r.mesh.RegisterRPC(r.rpc)
		r.master.RegisterRPC(r.rpc)
		nextlevel.Register(r.rpc)
	}
	return nil
}

// newJID returns a new job id, for parts that are made before the master.
func (r *process) newJID() string { return r.master.NewJID() }

// openOrders makes the part that carries out orders. It uses the master only once that serves.
func (r *process) openOrders(ctx context.Context) {
	o := r.opts
	r.keyOrders = keystore.NewOrders(r.keys, keystore.Surroundings{
		Fire:     r.bus.Fire,
		Forget:   func(ctx context.Context, id string) error { return r.data.Drop(ctx, id, true) },
		StageAES: r.node.StageAES, ActivateAES: r.node.ActivateAES,
		RotateAESKey: o.RotateAESKey, PreserveMinions: o.PreserveMinionCache,
	})
	var keep func(jid string, load value.RawMap, end string)
	if r.returners != nil {
		keep = r.returners.Return
	}
	r.orders = orders.NewJobs(orders.JobsDeps{
		Keep: keep, AlsoRoster: o.Extra["enable_ssh_minions"] == true, Life: ctx, Log: r.log,
		Fire: r.bus.Fire, Node: r.node, Jobs: r.jobs, Mesh: r.mesh, Targets: r.world, NewJID: r.newJID,
		TakeIn: r.export.TakeInChanged, ConfFile: o.ConfFile,
		Publish: func(ctx context.Context, q master.PublishRequest) (master.Published, error) {
			return r.master.Publish(ctx, q)
		},
		Timeout: o.Timeout, GatherJobTimeout: o.GatherJobTimeout, SyndicWait: o.WaitForSyndics(), Traces: r.traces,
	})
	r.functions = &orders.Functions{Life: ctx, NewJID: r.newJID, User: o.User}
	r.backupFiles = &backup.Files{Cluster: r.node, Jobs: r.jobs, Refuse: r.disk.Refuse, Master: o.ID,
		Version: Version, RotateAESKey: o.RotateAESKey}
}

// openOperator opens the commands' socket, and those of Salt's own clients.
func (r *process) openOperator() error {
	var err error
	r.local, err = localbus.Listen(r.opts.SockDir, settings.LocalBus(r.opts),
		localbus.Deps{Mesh: r.mesh, Bus: r.bus, Guard: r.python.Guard, Log: r.log, Reg: r.reg})
	if err != nil {
		return err
	}
	r.functions.Answer = r.local.Answer
	r.sock, err = operator.Listen(r.opts.SockDir, operator.Deps{
		Minions: r.orders, Keys: r.keyLists, Runners: r.functions, Bus: r.bus, ACL: r.rules, External: r.auth,
		Log: r.log, Reg: r.reg, Status: func() operator.Status {
			return operator.Status{ID: r.opts.ID, Version: Version, Serving: r.node.Serving(),
				Ready: r.node.Ready()}
		},
	})
	if err != nil {
		r.local.Close()
	}
	return err
}

// run serves until ctx ends or a part fails. The order of stopping: health goes
// down and the minion ports close, so that the balancer sends minions elsewhere;
// then the node hands leadership over; then the peer port, which that needs; the
// stores close last, by serveMaster.
func (r *process) run(ctx context.Context) error {
	lower := []daemon.Part{r.store.Run, r.disk.Run, r.folders.Run}
	if r.port != nil {
		lower = append(lower, r.port.Serve, func(ctx context.Context) error {
			return r.port.ServeRPC(ctx, r.rpc)
		})
	}
	upper := []daemon.Part{
		r.node.Run, r.extensions.Run, r.mesh.Run, r.reactor.Run, r.runSchedule, r.checkup.Run,
		r.sock.Serve, r.local.Serve, r.serveHealth, r.superviseHealth, r.traces.Run,
		func(ctx context.Context) error { daemon.GiveMemoryBack(ctx, r.givenBack); return nil },
		func(ctx context.Context) error { return r.node.WhileServing(ctx, r.serveMinions) },
		func(ctx context.Context) error { return r.node.WhileServing(ctx, r.engines.Run) },
		daemon.If(r.fileEvents().On, func(ctx context.Context) error {
			return r.files.Watch(ctx, time.Minute, r.fileEvents().Roots)
		}),
		daemon.If(r.returners != nil, r.returners.Run),
		daemon.If(r.port != nil, r.everywhere().Run),
		daemon.If(r.export != nil, r.export.Run),
		func(ctx context.Context) error { return settings.DropFile(r.opts, r.log).Run(ctx, r.keyOrders) },
		daemon.If(r.peers != nil, r.peers.Run),
		daemon.If(r.backups != nil, func(ctx context.Context) error {
			return r.backups.Run(ctx, r.backupFiles)
		}),
		daemon.If(r.roots != nil, r.roots.Run),
		daemon.If(r.git != nil, r.git.Run),
		daemon.If(r.userKeys != nil, r.userKeys.Run),
		daemon.If(r.onDisk != nil, r.onDisk.Run),
	}
	if r.git != nil {
		defer r.git.Close()
	}
	return daemon.Parts{Lower: lower, Upper: upper, Between: r.functions.Wait}.Run(ctx)
}

func (r *process) serveHealth(ctx context.Context) error {
	return health.Serve(ctx, r.opts.ResolveHealthListen(), r.opts.ResolveMetricsListen(), r.node,
		r.reg, r.door, r.log)
}

func (r *process) superviseHealth(ctx context.Context) error {
	return health.Supervise(ctx, r.systemd, health.Supervised{
		State: r.node, Loops: r.loops(), Listening: r.listening, NotServing: r.node.NotServing,
		Dir: filepath.Join(r.opts.CacheDir, "health"),
	}, r.log)
}

// loops are checked before each sign of life. None of them needs another master: a liveness that
// depends on the cluster would end masters in the middle of an election.
func (r *process) loops() *health.Loops {
	l := new(health.Loops)
	l.Add("replicated state", func() { r.node.State().MembershipVersion() })
	l.Add("cluster node", func() { r.node.Ready() })
	l.Add("keys", func() { r.keys.AcceptedIDs() })
	l.Add("ring store", func() { r.store.Info() })
	l.Add("event bus", func() { r.bus.Subscribe(unheard).Close() })
	return l
}

// unheard is a tag that no event has.
const unheard = "clustermaster/liveness"

// serveMinions serves on the minion ports until ctx ends.
func (r *process) serveMinions(ctx context.Context) error {
	return minion.Ports{
		Publish: r.opts.ListenAddr(r.opts.PublishPort), Request: r.opts.ListenAddr(r.opts.RetPort),
		Pub: r.pub, Req: r.req, Limits: minion.Limits{Backlog: r.opts.ZmqBacklog},
		Opened: func(publish, request net.Addr) (closed func()) {
			r.opened.Do(func() { close(r.listening) })
			r.log.Info("minion ports open", "publish", publish, "request", request, "took",
				time.Since(r.began).Round(time.Millisecond))
			if len(r.keys.AcceptedIDs()) > 0 {
				r.pub.ExpectBack()
			}
			return func() { r.log.Info("minion ports closed") }
		},
	}.Serve(ctx)
}
