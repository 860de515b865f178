package config

import (
	"time"

	"clustermaster/store/datadisk"
	"clustermaster/value"
)

// Roots are folders per Salt environment, in the order of the file.
type Roots []Env

// Env is one Salt environment and its folders; the first folder with a file wins.
type Env struct {
	Name   string
	Dirs   []string
	Listed []string // the folders as the file lists them: Dirs has the matches of a pattern
}

// Dirs returns the folders of an environment. __env__ stands for any other name, which replaces it
// in the paths.
func (r Roots) Dirs(env string) []string {
	for _, e := range r {
		if e.Name == env {
			return e.Dirs
		}
	}
	return nil
}

// WaitForSyndics is how long an order waits for syndics to name the minions below them; 0 if this
// master has no syndics.
func (o *Options) WaitForSyndics() time.Duration {
	if !o.OrderMasters {
		return 0
	}
	return max(o.SyndicWait, time.Millisecond) // syndic_wait: 0 does not deny that there are syndics
}

// Options is the configuration in force. Load alone writes to it.
//
// The tag opt is the option's name in the file; min and max bound a number; oneof
// lists the allowed texts. A time.Duration is in seconds in the file, in ms or
// minutes where unit says so. Defaults of Salt's options stand in options.tsv,
// those of ours in the tag own.
type Options struct {
	ConfFile string // the main file, even where it doesn't exist

	// Identity, network, process.
	ID             string `opt:"id"`
	Interface      string `opt:"interface"`
	IPv6           bool   `opt:"ipv6"`
	PublishPort    int    `opt:"publish_port" min:"1" max:"65535"`
	RetPort        int    `opt:"ret_port" min:"1" max:"65535"`
	User           string `opt:"user"`
	RootDir        string `opt:"root_dir"`
	PkiDir         string `opt:"pki_dir"`
	CacheDir       string `opt:"cachedir"`
	SockDir        string `opt:"sock_dir"`
	PidFile        string `opt:"pidfile"`
	TokenDir       string // derived from cachedir, as in Salt
	SyndicDir      string
	VerifyEnv      bool          `opt:"verify_env"`
	MaxOpenFiles   int           `opt:"max_open_files" min:"0"`
	Timeout        time.Duration `opt:"timeout" min:"0"`
	LoopInterval   time.Duration `opt:"loop_interval" min:"0"`
	HashType       string        `opt:"hash_type"`
	Transport      string        `opt:"transport"`
	ZmqBacklog     int           `opt:"zmq_backlog" min:"1"`
	PubHWM         int           `opt:"pub_hwm" min:"1"`
	ZmqFiltering   bool          `opt:"zmq_filtering"`
	TCPKeepalive   bool          `opt:"tcp_keepalive"`
	KeepaliveIdle  time.Duration `opt:"tcp_keepalive_idle"`
	KeepaliveIntvl time.Duration `opt:"tcp_keepalive_intvl"`
	KeepaliveCount int           `opt:"tcp_keepalive_cnt"`

	PermissivePkiAccess bool          `opt:"permissive_pki_access"`
	GatherJobTimeout    time.Duration `opt:"gather_job_timeout" min:"0"`
	PublishTimeout      time.Duration `opt:"publish_timeout" min:"0"`

	// Logging. Times and lines as Salt formats them.
	LogFile           string    `opt:"log_file"`
	LogLevel          string    `opt:"log_level" oneof:"all garbage trace debug profile info warning error critical quiet"`
	LogLevelLogfile   string    `opt:"log_level_logfile" oneof:"all garbage trace debug profile info warning error critical quiet"`
	KeyLogfile        string    `opt:"key_logfile"`
	LogFmtConsole     string    `opt:"log_fmt_console"`
	LogFmtLogfile     string    `opt:"log_fmt_logfile"`
	LogDatefmt        string    `opt:"log_datefmt"`
	LogDatefmtLogfile string    `opt:"log_datefmt_logfile"`
	LogGranularLevels value.Map `opt:"log_granular_levels"`
	LogRotateMaxBytes int       `opt:"log_rotate_max_bytes" min:"0"`
	LogRotateBackups  int       `opt:"log_rotate_backup_count" min:"0"`

	// Cluster.
	ClusterID                   string        `opt:"cluster_id"`
	ClusterPeers                []string      `opt:"cluster_peers"`
	ClusterPkiDir               string        `opt:"cluster_pki_dir"`
	ClusterSecret               Secret        `opt:"cluster_secret"`
	ClusterPoolPort             int           `opt:"cluster_pool_port" min:"1" max:"65535"`
	ClusterPubFingerprint       string        `opt:"cluster_pub_fingerprint"`
	ClusterIsolatedFilesystem   bool          `opt:"cluster_isolated_filesystem"`
	ClusterKeyPass              Secret        `opt:"cluster_key_pass"`
	ClusterEncryptionAlgorithm  string        `opt:"cluster_encryption_algorithm"`
	ClusterElectionMin          time.Duration `opt:"cluster_election_min" own:"0" unit:"ms" min:"0"`
	ClusterElectionMax          time.Duration `opt:"cluster_election_max" own:"0" unit:"ms" min:"0"`
	ClusterJoinTimeout          time.Duration `opt:"cluster_join_timeout" own:"30" min:"1"`
	ClusterMaxLogSize           int           `opt:"cluster_max_log_size" own:"0" min:"0"`
	ClusterMaxVoters            int           `opt:"cluster_max_voters" own:"5" min:"1" max:"15"`
	ClusterMinVoters            int           `opt:"cluster_min_voters" min:"1" max:"15"`
	ClusterAutoReplaceVoters    bool          `opt:"cluster_auto_replace_voters"`
	ClusterVoterTimeout         time.Duration `opt:"cluster_voter_timeout" min:"1"`
	ClusterDemoteCooldown       time.Duration `opt:"cluster_demote_cooldown" min:"0"`
	ClusterVoterHealthInterval  time.Duration `opt:"cluster_voter_health_check_interval"`
	ClusterAdvertise            string        `opt:"cluster_advertise" own:"''"`
	ClusterStaleLimit           time.Duration `opt:"cluster_stale_limit" own:"10" min:"2"`
	ClusterPeerTimeout          time.Duration `opt:"cluster_peer_timeout" own:"1.5" min:"1"`
	ClusterIsolatedServeSeconds int           `opt:"cluster_isolated_serve_seconds" own:"86400" min:"0"`
	ClusterClockLimit           time.Duration `opt:"cluster_clock_limit" own:"30" min:"1"`
	ClusterUpgradeCommand       []string      `opt:"cluster_upgrade_command" own:"[]"`
	ClusterTransferRate         int           `opt:"cluster_transfer_rate" own:"67108864" min:"65536"`
	RingDeadAfter               time.Duration `opt:"ring_dead_after" own:"600" min:"10"`
	RingTombstoneSeconds        int           `opt:"ring_tombstone_seconds" own:"259200" min:"600"`
	DiskReserve                 string        `opt:"disk_reserve" own:"''"`
	SealKey                     string        `opt:"seal_key" own:"''"`
	BackupDir                   string        `opt:"backup_dir" own:"''"`
	BackupInterval              time.Duration `opt:"backup_interval" own:"86400" min:"5"`
	BackupKeep                  int           `opt:"backup_keep" own:"14" min:"1"`
	BackupPassphraseFile        string        `opt:"backup_passphrase_file" own:"''"`
	BackupJobs                  bool          `opt:"backup_jobs" own:"false"`
	BackupBy                    string        `opt:"backup_by" own:"leader" oneof:"leader all"`
	PublishRetry                bool          `opt:"publish_retry" own:"true"`
	EnableClearCommands         bool          `opt:"enable_clear_commands" own:"false"`
	HealthListen                string        `opt:"health_listen" own:"''"`
	MetricsListen               string        `opt:"metrics_listen" own:"''"`
	MetricsTLSCert              string        `opt:"metrics_tls_cert" own:"''"`
	MetricsTLSKey               string        `opt:"metrics_tls_key" own:"''"`
	MetricsClientCA             string        `opt:"metrics_client_ca" own:"''"`
	MetricsUsers                string        `opt:"metrics_users" own:"''"`
	TracesEndpoint              string        `opt:"traces_endpoint" own:"''"`
	TracesRatio                 float64       `opt:"traces_ratio" own:"1" min:"0" max:"1"`
	TracesReturns               int           `opt:"traces_returns" own:"100" min:"0"`
	ProxyProtocol               bool          `opt:"proxy_protocol" own:"false"`
	ProxyProtocolFrom           []string      `opt:"proxy_protocol_from" own:"[]"`
	MaxFrameSize                int           `opt:"max_frame_size" own:"134217728" min:"65536" max:"2147483647"`
	MaxConnections              int           `opt:"max_connections" own:"50000" min:"16"`
	MaxConnectionsPerSource     int           `opt:"max_connections_per_source" own:"0" min:"0"`
	MaxPendingKeys              int           `opt:"max_pending_keys" own:"10000" min:"1"`
	MaxPendingKeysPerSource     int           `opt:"max_pending_keys_per_source" own:"1000" min:"0"`
	UnknownKeyProcessors        int           `opt:"unknown_key_processors" own:"0" min:"0"`
	GitfsProvider               string        `opt:"gitfs_provider" own:"''"`
	GitPillarProvider           string        `opt:"git_pillar_provider" own:"''"`
	GitFetchTimeout             time.Duration `opt:"git_fetch_timeout" own:"600" min:"1"`
	GitAllowedSigners           string        `opt:"git_allowed_signers" own:"''"`
	GitKnownHosts               string        `opt:"git_known_hosts" own:"''"`
	GitJobFunctions             []string      `opt:"git_job_functions" own:"[]"`
	GitJobLimit                 time.Duration `opt:"git_job_limit" own:"3600" min:"1" max:"604800"`
	RenderPython                string        `opt:"render_python" own:"''"`
	RenderWorkers               int           `opt:"render_workers" own:"0" min:"0" max:"256"`
	RenderTimeout               time.Duration `opt:"render_timeout" own:"30" min:"1"`
	RenderMemory                int           `opt:"render_memory" own:"1073741824" min:"268435456"`
	RenderOutput                int           `opt:"render_output" own:"67108864" min:"65536" max:"2147483647"`
	RenderIdle                  time.Duration `opt:"render_idle" own:"300" min:"1"`
	RenderCache                 int           `opt:"render_cache" own:"33554432" min:"0"`
	PythonHost                  string        `opt:"python_host" own:"''"`
	PythonTimeout               time.Duration `opt:"python_timeout" own:"60" min:"1"`
	PythonSSHTimeout            time.Duration `opt:"python_ssh_timeout" own:"14400" min:"1"`
	PythonRunnerTimeout         time.Duration `opt:"python_runner_timeout" own:"0" min:"0"`
	PythonMemory                int           `opt:"python_memory" own:"1073741824" min:"268435456"`
	PythonOutput                int           `opt:"python_output" own:"67108864" min:"65536" max:"2147483647"`
	PythonProcesses             int           `opt:"python_processes" own:"64" min:"1"`
	PythonChildren              int           `opt:"python_children" own:"0" min:"0" max:"1024"`
	PythonPillarsPerChild       int           `opt:"python_pillars_per_child" own:"100" min:"1"`
	PythonIdle                  time.Duration `opt:"python_idle" own:"300" min:"1"`
	ReturnerQueueSize           int           `opt:"returner_queue_size" own:"1073741824" min:"1048576"`
	EnginesEverywhere           []string      `opt:"engines_everywhere" own:"[]"`

	// Keys and messages.
	OpenMode                  bool          `opt:"open_mode"`
	AutoAccept                bool          `opt:"auto_accept"`
	AutosignFile              string        `opt:"autosign_file" own:"''"`
	AutorejectFile            string        `opt:"autoreject_file" own:"''"`
	AutosignGrainsDir         string        `opt:"autosign_grains_dir" own:"''"`
	AutosignTimeout           time.Duration `opt:"autosign_timeout" own:"120" unit:"m" min:"0"`
	KeySize                   int           `opt:"keysize" min:"2048" max:"8192"`
	KeysDriver                string        `opt:"keys.cache_driver"`
	KeyPass                   Secret        `opt:"key_pass"`
	SigningKeyPass            Secret        `opt:"signing_key_pass"`
	MasterSignPubkey          bool          `opt:"master_sign_pubkey"`
	MasterSignKeyName         string        `opt:"master_sign_key_name"`
	MasterPubkeySignature     string        `opt:"master_pubkey_signature"`
	MasterUsePubkeySignature  bool          `opt:"master_use_pubkey_signature"`
	SignPubMessages           bool          `opt:"sign_pub_messages"`
	PublishSigningAlgorithm   string        `opt:"publish_signing_algorithm"`
	RequireMinionSignMessages bool          `opt:"require_minion_sign_messages"`
	DropMessagesSignatureFail bool          `opt:"drop_messages_signature_fail"`
	MinimumAuthVersion        int           `opt:"minimum_auth_version" min:"0" max:"3"`
	LegacyMinions             []string      `opt:"legacy_minions" own:"[]"`
	RequestServerTTL          time.Duration `opt:"request_server_ttl" min:"0"`
	RequestServerAESSession   time.Duration `opt:"request_server_aes_session" min:"0"`
	PublishSession            time.Duration `opt:"publish_session" min:"60"`
	RotateAESKey              bool          `opt:"rotate_aes_key"`
	PingOnRotate              bool          `opt:"ping_on_rotate"`
	MaxMinions                int           `opt:"max_minions" min:"0"`
	AllowMinionKeyRevoke      bool          `opt:"allow_minion_key_revoke"`
	AuthEvents                bool          `opt:"auth_events"`

	// Who may run what.
	PublisherACL             value.Map     `opt:"publisher_acl"`
	PublisherACLBlacklist    value.Map     `opt:"publisher_acl_blacklist"`
	ClientACLVerify          bool          `opt:"client_acl_verify"`
	SudoACL                  bool          `opt:"sudo_acl"`
	PermissiveACL            bool          `opt:"permissive_acl"`
	ExternalAuth             value.Map     `opt:"external_auth"`
	EauthACLModule           string        `opt:"eauth_acl_module"`
	SharedSecret             Secret        `opt:"sharedsecret"`
	TokenFile                string        `opt:"token_file"`
	TokenExpire              time.Duration `opt:"token_expire" min:"1"`
	TokenExpireUserOverride  any           `opt:"token_expire_user_override"`
	KeepACLInToken           bool          `opt:"keep_acl_in_token"`
	Peer                     value.Map     `opt:"peer"`
	PeerRun                  value.Map     `opt:"peer_run" own:"{}"`
	FileRecv                 bool          `opt:"file_recv"`
	FileRecvCopies           bool          `opt:"file_recv_copies" own:"True"`
	FileRecvMaxSize          int           `opt:"file_recv_max_size" min:"0"`
	FileRecvMaxDaily         int           `opt:"file_recv_max_daily" own:"10240" min:"0"`
	FileRecvMaxStored        int           `opt:"file_recv_max_stored" own:"10240" min:"0"`
	FileRecvMaxStoredTotal   int           `opt:"file_recv_max_stored_total" own:"51200" min:"0"`
	MinionJobsMaxHourly      int           `opt:"minion_jobs_max_hourly" own:"36000" min:"0"`
	MinionJobsMaxStored      int           `opt:"minion_jobs_max_stored" own:"1024" min:"0"`
	MinionJobsMaxStoredTotal int           `opt:"minion_jobs_max_stored_total" own:"51200" min:"0"`
	MinionMineMaxSize        int           `opt:"minion_mine_max_size" own:"67108864" min:"0"`
	MinionPillarenvsMax      int           `opt:"minion_pillarenvs_max" own:"256" min:"0"`

	// Files, pillar, states.
	FileRoots                   Roots         `opt:"file_roots"`
	PillarRoots                 Roots         `opt:"pillar_roots"`
	FileserverBackend           []string      `opt:"fileserver_backend"`
	FileserverFollowSymlinks    bool          `opt:"fileserver_followsymlinks"`
	FileserverIgnoreSymlinks    bool          `opt:"fileserver_ignoresymlinks"`
	FileIgnoreRegex             []string      `opt:"file_ignore_regex"`
	FileIgnoreGlob              []string      `opt:"file_ignore_glob"`
	MinionfsEnv                 string        `opt:"minionfs_env"`
	MinionfsMountpoint          string        `opt:"minionfs_mountpoint"`
	MinionfsWhitelist           []string      `opt:"minionfs_whitelist"`
	MinionfsBlacklist           []string      `opt:"minionfs_blacklist"`
	FileBufferSize              int           `opt:"file_buffer_size" min:"1024" max:"67108864"`
	DefaultTop                  string        `opt:"default_top"`
	StateTop                    string        `opt:"state_top"`
	StateTopSaltenv             string        `opt:"state_top_saltenv"`
	TopFileMergingStrategy      string        `opt:"top_file_merging_strategy" oneof:"merge merge_all same"`
	EnvOrder                    []string      `opt:"env_order"`
	Saltenv                     string        `opt:"saltenv"`
	Pillarenv                   string        `opt:"pillarenv"`
	Renderer                    string        `opt:"renderer"`
	Failhard                    bool          `opt:"failhard"`
	StateAutoOrder              bool          `opt:"state_auto_order"`
	StateEvents                 bool          `opt:"state_events"`
	StateAggregate              any           `opt:"state_aggregate"`
	StateMaxParallel            int           `opt:"state_max_parallel" min:"0"`
	DisabledRequisites          []string      `opt:"disabled_requisites" own:"[]"`
	GlobalStateConditions       value.Map     `opt:"global_state_conditions"`
	Local                       bool          `opt:"local"`
	Test                        bool          `opt:"test"`
	JinjaEnv                    value.Map     `opt:"jinja_env"`
	JinjaSLSEnv                 value.Map     `opt:"jinja_sls_env"`
	JinjaLstripBlocks           bool          `opt:"jinja_lstrip_blocks"`
	JinjaTrimBlocks             bool          `opt:"jinja_trim_blocks"`
	Nodegroups                  value.Map     `opt:"nodegroups"`
	PillarOpts                  bool          `opt:"pillar_opts"`
	PillarMergeLists            bool          `opt:"pillar_merge_lists"`
	PillarSourceMergingStrategy string        `opt:"pillar_source_merging_strategy" oneof:"smart recurse aggregate overwrite none list"`
	PillarIncludesOverrideSLS   bool          `opt:"pillar_includes_override_sls"`
	PillarSafeRenderError       bool          `opt:"pillar_safe_render_error"`
	PillarCache                 bool          `opt:"pillar_cache"`
	PillarCacheTTL              time.Duration `opt:"pillar_cache_ttl" min:"0"`
	PillarenvFromSaltenv        bool          `opt:"pillarenv_from_saltenv" own:"false"`
	ExtPillar                   []any         `opt:"ext_pillar"`
	ExtPillarFirst              bool          `opt:"ext_pillar_first" own:"false"`
	OnDemandExtPillar           []string      `opt:"on_demand_ext_pillar"`
	DecryptPillar               []any         `opt:"decrypt_pillar"`
	DecryptPillarDelimiter      string        `opt:"decrypt_pillar_delimiter"`
	DecryptPillarDefault        string        `opt:"decrypt_pillar_default"`
	DecryptPillarRenderers      []string      `opt:"decrypt_pillar_renderers"`
	MaxPillarSize               int           `opt:"max_pillar_size" own:"67108864" min:"65536" max:"1073741824"`
	PillarTimeout               time.Duration `opt:"pillar_timeout" own:"60" min:"1"`

	// Jobs, data, events.
	JobCache             bool `opt:"job_cache"`
	KeepJobsSeconds      int  `opt:"keep_jobs_seconds" min:"0"`
	UniqueJID            bool `opt:"unique_jid"`
	JobCacheStoreEndtime bool `opt:"job_cache_store_endtime"`
	MinionDataCache      bool `opt:"minion_data_cache"`
	MinionDataEvents     bool `opt:"minion_data_cache_events"`
	PreserveMinionCache  bool `opt:"preserve_minion_cache"`
	EnforceMineCache     bool `opt:"enforce_mine_cache"`
	MaxEventSize         int  `opt:"max_event_size" min:"0"`
	// For listeners on the local bus: events that may wait for one, and how long it may take none.
	PubServerWriteQueueSize int           `opt:"pub_server_write_queue_size" min:"0"`
	PublishDrainTimeout     time.Duration `opt:"publish_drain_timeout" min:"0"`
	EventMatchType          string        `opt:"event_match_type" oneof:"startswith endswith find regex fnmatch"`
	PresenceEvents          bool          `opt:"presence_events" own:"false"`
	OrderMasters            bool          `opt:"order_masters"`
	Syndics                 []string      `opt:"syndics" own:"[]"`
	SyndicWait              time.Duration `opt:"syndic_wait" min:"0"`
	Schedule                value.Map     `opt:"schedule"`
	Reactor                 []any         `opt:"reactor"`
	ReactorWorkerThreads    int           `opt:"reactor_worker_threads" min:"1"`
	ReactorWorkerHWM        int           `opt:"reactor_worker_hwm" min:"1"`
	RunnerReturns           bool          `opt:"runner_returns"`

	// What the commands print.
	StateOutput  string `opt:"state_output"`
	StateVerbose bool   `opt:"state_verbose"`
	CLISummary   bool   `opt:"cli_summary"`
	ShowTimeout  bool   `opt:"show_timeout"`
	ShowJID      bool   `opt:"show_jid"`
	Output       string `opt:"output" own:"''"`
	OutputFile   string `opt:"output_file" own:"''"`
	Color        bool   `opt:"color" own:"true"`
	StripColors  bool   `opt:"strip_colors" own:"true"`

	// Extra holds every option as it was read from the files, known or not;
	// secrets are Secret.
	Extra map[string]any

	origins map[string]origin
	files   []string // that were read
	leftOut error    // files that were not; see Broken
	home    string   // of the user, for ~ in includes
}

// origin is where an option was read.
type origin struct {
	file string
	line int
}

// DiskReserveSize is the option disk_reserve.
func (o *Options) DiskReserveSize() (datadisk.Size, error) {
	return datadisk.ParseSize(o.DiskReserve)
}
