package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/backup"
	"clustermaster/config"
	"clustermaster/salt/saltpython"
	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/serve/event/localbus"
	"clustermaster/serve/health"
	"clustermaster/serve/traces"
	"clustermaster/store/allotment"
	"clustermaster/store/jobcache/localcache"
	"clustermaster/store/miniondata"
	"clustermaster/store/seal"
	"clustermaster/transport/minion"
)

// Check builds everything that can fail because of the options alone, and reads files that they
// name. It changes nothing except the keys that Master makes, and runs no command of seal_key.
// Doubts are what a start takes although it can't work.
func Check(o *config.Options) (doubts []string, err error) {
	if open := o.OpenSecret(); open != "" {
		doubts = append(doubts, open)
	}
	doubts = append(doubts, o.Unreadable()...)
	if o.BackupDir != "" {
		if err := backup.CheckPassphrase(o.BackupPassphraseFile); err != nil {
			doubts = append(doubts, err.Error()+"; no backup can be made")
		}
	}
	if o.PythonHost != "" && o.PythonHost != saltpython.None {
		if _, err := saltpython.Find(o.PythonHost); err != nil {
			doubts = append(doubts, err.Error())
		}
	}
	return doubts, refused(o)
}

func refused(o *config.Options) error {
	if _, err := os.Stat(o.DataDir()); err == nil || errors.Is(err, fs.ErrNotExist) {
		if !cluster.HasState(Cluster(o).DataDir) {
			if err := o.CheckFirst(false); err != nil {
				return err
			}
		}
	}
	if strings.HasPrefix(o.SealKey, "file:") {
		if _, err := seal.Load(context.Background(), o.SealKey, os.Getenv); err != nil {
			return fmt.Errorf("seal_key: %w", err)
		}
	}
	if _, err := Master(o); err != nil {
		return err
	}
	if _, err := acl.New(ACL(o)); err != nil {
		return err
	}
	noPython := func(context.Context) ([]string, error) {
		return nil, errors.New("a check starts no Python")
	}
	if _, err := auth.New(Auth(o), auth.Deps{Python: noPython}); err != nil {
		return err
	}
	_, err := health.NewDoor(Door(o))
	return err
}

// Door returns the files for readers of metrics.
func Door(o *config.Options) health.DoorFiles {
	return health.DoorFiles{Cert: o.MetricsTLSCert, Key: o.MetricsTLSKey,
		ClientCA: o.MetricsClientCA, Users: o.MetricsUsers}
}

// Traces takes the options of traces. Copies is how many masters keep each record.
func Traces(o *config.Options, version string, copies func() int) traces.Options {
	return traces.Options{Endpoint: o.TracesEndpoint, Ratio: o.TracesRatio,
		Returns: o.TracesReturns, Cluster: cmp.Or(o.ClusterID, o.ID), Master: o.ID,
		Version: version, Copies: copies}
}

// Minions takes the limits of the minion ports from the options; both together may have so many
// connections.
func Minions(o *config.Options, connections int) minion.Limits {
	return minion.Limits{
		MaxFrame: int64(o.MaxFrameSize), PubHWM: o.PubHWM, Backlog: o.ZmqBacklog,
		MaxConns: o.MaxConnections, Total: minion.NewTotal(connections), ProxyFrom: o.ProxyFrom(),
		MaxPerSource: o.MaxConnectionsPerSource, Unlimited: o.Balancers(),
	}
}

// LocalBus takes the options of the event bus for Salt's own clients.
func LocalBus(o *config.Options) localbus.Options {
	return localbus.Options{
		MaxEvent: o.MaxEventSize, Queue: o.PubServerWriteQueueSize,
		WriteTimeout: o.PublishDrainTimeout,
		Untrue:       map[string]string{"salt/key": "Salt's own salt-key changes files that are a copy; use the salt-key of this master"},
	}
}

// LocalCache takes the options of the jobs for Salt's own clients.
func LocalCache(o *config.Options) localcache.Options {
	return localcache.Options{Dir: filepath.Join(o.CacheDir, "jobs"), HashType: o.HashType,
		Keep: time.Duration(o.KeepJobsSeconds) * time.Second}
}

// Stored bounds what is stored for minions: data of one, pushed files and jobs of one and of all.
func Stored(o *config.Options) (data miniondata.Quotas, files, jobs allotment.Limits) {
	return miniondata.Quotas{MineBytes: o.MinionMineMaxSize, Pillarenvs: o.MinionPillarenvsMax},
		allotment.Limits{One: int64(o.FileRecvMaxStored) << 20,
			All: int64(o.FileRecvMaxStoredTotal) << 20},
		allotment.Limits{One: int64(o.MinionJobsMaxStored) << 20,
			All: int64(o.MinionJobsMaxStoredTotal) << 20}
}
