package settings

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/backup"
	"clustermaster/config"
	"clustermaster/keystore"
	"clustermaster/statesync"
	"clustermaster/store/datadisk"
	"clustermaster/store/ringstore"
	"clustermaster/transport/peer"
	"clustermaster/wire"
)

// Cluster takes the Raft node's configuration from the options. The caller adds the rest: keys,
// address, version and what the node needs from other packages.
func Cluster(o *config.Options) cluster.Config {
	c := cluster.Config{
		ID:             o.ID,
		ClusterID:      o.ClusterID,
		Peers:          o.PeerAddrs(),
		PubFingerprint: o.ClusterPubFingerprint,
		DataDir:        filepath.Join(o.DataDir(), "cluster"),
		WholeDir:       o.DataDir(),
		MaxVoters:      o.ClusterMaxVoters,
		MinVoters:      o.ClusterMinVoters,
		ReplaceVoters:  o.ClusterAutoReplaceVoters,
		VoterTimeout:   o.ClusterVoterTimeout,
		VoterCheck:     o.ClusterVoterHealthInterval,
		DemoteCooldown: o.ClusterDemoteCooldown,
		JoinTimeout:    o.ClusterJoinTimeout,
		StaleLimit:     o.ClusterStaleLimit,
		ClockLimit:     o.ClusterClockLimit,
		RingDeadAfter:  o.RingDeadAfter,
		IsolatedServe:  time.Duration(o.ClusterIsolatedServeSeconds) * time.Second,
		PublishSession: o.PublishSession,
		KeySize:        o.KeySize,
		FoundingKeys:   FoundingKeys(o),
		MayMakeKey:     func() error { return keyLost(o) },
	}
	c.HeartbeatTimeout, c.ElectionTimeout = electionTimes(o)
	return c
}

// Peer takes the configuration of the port between masters from the options.
func Peer(o *config.Options, advertise string) peer.Config {
	return peer.Config{
		Listen:           o.ListenAddr(o.ClusterPoolPort),
		Advertise:        advertise,
		DialFrom:         dialFrom(o.Interface),
		NamesFile:        filepath.Join(o.DataDir(), "addresses.json"),
		HandshakeTimeout: max(leastHandshake, 3*o.ClusterPeerTimeout),
		HeartbeatEvery:   o.ClusterPeerTimeout / 3,
		DownAfter:        o.ClusterPeerTimeout,
		MaxMessage:       o.MaxFrameSize + peerOverhead,
	}
}

// peerOverhead is what may surround a request's payload in a message between masters, in bytes.
const peerOverhead = 32 << 20

// Ring takes the ring store's options from the options.
func Ring(o *config.Options) ringstore.Options {
	return ringstore.Options{
		TransferRate: int64(o.ClusterTransferRate),
		MaxRecord:    o.MaxFrameSize + 1<<20,
		BucketWidth:  time.Duration(o.KeepJobsSeconds) * time.Second / 24,
		TombstoneFor: time.Duration(o.RingTombstoneSeconds) * time.Second,
	}
}

// Backups takes the plan of scheduled backups from the options.
func Backups(o *config.Options) backup.Plan {
	return backup.Plan{
		Folder: backup.Folder{Dir: o.BackupDir, Cluster: cmp.Or(o.ClusterID, o.ID),
			Master: o.ID},
		Interval:       o.BackupInterval,
		ClockLimit:     o.ClusterClockLimit,
		Keep:           o.BackupKeep,
		All:            o.BackupBy == "all",
		Jobs:           o.BackupJobs,
		PassphraseFile: o.BackupPassphraseFile,
	}
}

// Folders lists the folders from which a master serves.
func Folders(o *config.Options) []datadisk.Folder {
	out := []datadisk.Folder{{Option: "pki_dir", Path: o.KeysDir()}}
	for _, roots := range []struct {
		option string
		envs   []config.Env
	}{{"file_roots", o.FileRoots}, {"pillar_roots", o.PillarRoots}} {
		for _, env := range roots.envs {
			for _, dir := range env.Dirs {
				out = append(out, datadisk.Folder{Option: roots.option, Path: dir})
			}
		}
	}
	return out
}

// Roots takes the options for syncing file_roots and pillar_roots.
func Roots(o *config.Options) statesync.Options {
	envs := func(all []config.Env) []statesync.Env {
		out := make([]statesync.Env, len(all))
		for i, e := range all {
			out[i] = statesync.Env{Name: e.Name, Dirs: e.Listed}
		}
		return out
	}
	return statesync.Options{
		ID:       o.ID,
		File:     envs(o.FileRoots),
		Pillar:   envs(o.PillarRoots),
		Isolated: o.ClusterIsolatedFilesystem,
		Rate:     int64(o.ClusterTransferRate),
	}
}

// electionTimes derives Raft's two times from Salt's options: a follower waits for its leader for
// heartbeat to twice that, a candidate waits for votes for election to twice that, which is
// cluster_election_max at most. 0 means the default of package cluster.
func electionTimes(o *config.Options) (heartbeat, election time.Duration) {
	heartbeat, election = o.ClusterElectionMin, o.ClusterElectionMax/2
	if heartbeat == 0 {
		heartbeat = election
	}
	return heartbeat, election
}

// FoundingKeys returns the places where Salt keeps the key that minions know their master by, as
// files or in the mmap_key driver's; a cluster's before a master's own. The driver in force comes
// first, because files may be older than it.
func FoundingKeys(o *config.Options) []cluster.FoundingKey {
	var keys []cluster.FoundingKey
	accepted := make(map[string]func() (int, error))
	for _, dir := range []string{o.ClusterPkiDir, o.PkiDir} {
		accepted[dir] = sync.OnceValues(func() (int, error) { return keystore.CountAccepted(dir) })
	}
	add := func(dir, name, pass string) {
		path := filepath.Join(dir, name)
		file := cluster.FoundingKey{From: path, Pass: pass, Accepted: accepted[dir],
			Read: func() ([]byte, error) { return os.ReadFile(path) }}
		mapped := cluster.FoundingKey{From: "mmap_key:" + path, Pass: pass, Accepted: accepted[dir],
			Read: func() ([]byte, error) { return keystore.ReadMmapMaster(dir, name) }}
		if o.KeysDriver == "mmap_key" {
			file, mapped = mapped, file
		}
		keys = append(keys, file, mapped)
	}
	if o.ClusterID != "" {
		add(o.ClusterPkiDir, "cluster.pem", o.ClusterKeyPass.Reveal())
	}
	add(o.PkiDir, strings.TrimSuffix(o.ID, "_master")+".pem", o.KeyPass.Reveal())
	add(o.PkiDir, "master.pem", o.KeyPass.Reveal())
	return keys
}

// keyLost says that minions whose keys this program exported know a key that is gone.
func keyLost(o *config.Options) error {
	n, err := keystore.CountExported(o.KeysDir())
	if err != nil {
		return fmt.Errorf("read the list of exported keys: %w", err)
	}
	if n == 0 {
		return nil
	}
	pair := filepath.Join(o.PkiDir, "master")
	if o.ClusterID != "" {
		pair = filepath.Join(o.ClusterPkiDir, "cluster")
	}
	return fmt.Errorf("the key that minions know is gone: %s, which had it, is new, and the %d minions in %s refuse another key. "+
		"Nothing was changed. With a backup: start once with salt-master --found, then restore it with salt-run cluster.restore. "+
		"With the pair that cluster.export_key wrote: put it there as %s.pem and .pub. "+
		"With neither, --found makes a new key; then delete minion_master.pub on the minions",
		o.DataDir(), n, filepath.Join(o.KeysDir(), keystore.Accepted.String()), pair)
}

// OwnKey keeps the key of a stand-alone master in pki_dir.
func OwnKey(o *config.Options, key func() *wire.PrivateKey, log *slog.Logger) *cluster.OwnKey {
	return &cluster.OwnKey{Dir: o.PkiDir, Pass: o.KeyPass.Reveal(), PublicOnly: o.SealKey != "",
		Key: key, Log: log}
}

// DropFile is where Salt's own salt-key asks for a new AES key.
func DropFile(o *config.Options, log *slog.Logger) *keystore.DropFile {
	return &keystore.DropFile{Path: filepath.Join(o.CacheDir, ".dfn"), ID: o.ID, Log: log}
}

// leastHandshake is the minimum time for the hand-shake of peers, if cluster_peer_timeout is not
// longer.
const leastHandshake = 5 * time.Second

// dialFrom returns the source address of connections to peers: the interface, unless that is a
// wildcard.
func dialFrom(host string) string {
	if a, err := netip.ParseAddr(host); err != nil || a.IsUnspecified() {
		return ""
	}
	return host
}
