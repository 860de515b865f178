package master

import (
	"context"
	"time"

	"clustermaster/value"
	"clustermaster/wire"
)

// Options are the master options that requests and publications depend on, named as in Salt's
// config.
type Options struct {
	ID          string
	Node        string // name of this master in the cluster, for UniqueJID
	PublishPort int
	// cluster_peer_timeout: how long a living master may be silent, as on slow links
	PeerTimeout time.Duration

	// Channel.
	MinimumAuthVersion int           // minimum_auth_version; lower versions are refused
	LegacyMinions      []string      // legacy_minions: globs of ids that need no token below version 3
	RequestServerTTL   time.Duration // request_server_ttl; 0 is off
	// bytes that a minion's decoded request may take; 0: no bound
	MaxDecoded int64

	// Signing in.
	AutoAccept               bool
	OpenMode                 bool
	AutosignFile             string // "": none; so for all paths below
	AutorejectFile           string
	AutosignDir              string // pki_dir/minions_autosign
	AutosignTimeout          time.Duration
	AutosignGrainsDir        string
	PermissivePkiAccess      bool
	MaxMinions               int
	MaxPendingKeys           int
	MaxPendingKeysPerSource  int // unvetted keys from one address; 0: no bound
	UnknownKeyProcessors     int // for answers to strangers at the same time; 0: half of all
	AuthEvents               bool
	AuthEventsAutosignGrains []string         // acts whose events carry the autosign grains
	MasterSignKey            *wire.PrivateKey // master_sign_pubkey; nil is off
	// content of the signature file with master_use_pubkey_signature
	PubkeySignature string

	// Returns, events and data.
	JobCache                  bool
	ExtJobCache               string
	StoreEndTime              bool // job_cache_store_endtime
	RequireMinionSignMessages bool
	DropMessagesSignatureFail bool
	MinionDataCache           bool
	MinionDataCacheEvents     bool
	EnforceMineCache          bool
	// pillar_cache: store pillars even without minion_data_cache
	PillarCache bool
	// mine_get: regular expressions on ids to lists of those on functions; nil allows all
	MineGet              value.Map
	AllowMinionKeyRevoke bool
	PreserveMinionCache  bool
	PillarVersion        int
	FileEnvs             func() []string // environments of file_roots, for _master_opts
	// values of _master_opts that differ from Salt's defaults
	MasterOpts value.Map
	// MasterTops maps environments to a minion's SLS names; opts are the minion's options, with its
	// grains. Nil: no master_tops.
	MasterTops func(ctx context.Context, id string, opts value.Map) value.Map

	// What minions may order and push. peer: regular expressions on ids to lists of those on
	// functions
	Peer            value.Map
	PeerRun         value.Map     // peer_run: the same for runner functions
	Nodegroups      value.Map     // nodegroups
	Timeout         time.Duration // timeout: how long minion_publish waits by default
	FileRecv        bool          // file_recv
	FileRecvMaxSize int64         // file_recv_max_size in bytes
	// file_recv_max_daily in bytes, of one minion on this master; 0: no bound
	FileRecvPerDay int64
	// minion_jobs_max_hourly: unpublished jobs of one minion on this master; 0: no bound
	JobsPerHour int64

	// Users' orders.
	ClearCommands bool   // enable_clear_commands
	MasterUser    string // user; its key is valid for any claim, as root's is

	// Publishing.
	SignPubMessages         bool
	PublishSigningAlgorithm string // "" means PKCS1v15-SHA1
	ZmqFiltering            bool
	OrderMasters            bool
	Syndics                 []string // syndics: globs of the ids of syndics, with OrderMasters
	MasterID                string   // master_id; "" leaves it out
	PublishRetry            bool
	UniqueJID               bool // unique_jid
}

// DefaultOptions are Salt's defaults.
func DefaultOptions() Options {
	return Options{
		PublishPort:             4505,
		MinimumAuthVersion:      3,
		AutosignTimeout:         120 * time.Minute,
		AuthEvents:              true,
		JobCache:                true,
		MinionDataCache:         true,
		MinionDataCacheEvents:   true,
		AllowMinionKeyRevoke:    true,
		PillarVersion:           2,
		SignPubMessages:         true,
		PublishSigningAlgorithm: wire.SigSHA1,
		PublishRetry:            true,
		Timeout:                 5 * time.Second,
		FileRecvMaxSize:         100 << 20,
	}
}
