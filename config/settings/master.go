package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"clustermaster/cluster"
	"clustermaster/config"
	"clustermaster/serve/master"
	"clustermaster/value"
	"clustermaster/wire"
)

// decodedTimes is how many times max_frame_size a minion's request may take when it is decoded:
// text takes about three times its length, long lists of small numbers more than ten times.
const decodedTimes = 4

// Master takes the request handler's options. It reads, or makes, the keys of master_sign_pubkey.
func Master(o *config.Options) (master.Options, error) {
	m := master.DefaultOptions()
	m.ID, m.PublishPort = o.ID, o.PublishPort
	m.PeerTimeout = o.ClusterPeerTimeout
	m.MinimumAuthVersion, m.RequestServerTTL = o.MinimumAuthVersion, o.RequestServerTTL
	m.LegacyMinions = o.LegacyMinions
	m.MaxDecoded = decodedTimes * int64(o.MaxFrameSize)
	m.AutoAccept, m.OpenMode = o.AutoAccept, o.OpenMode
	m.AutosignFile, m.AutorejectFile = o.AutosignFile, o.AutorejectFile
	m.AutosignDir, m.AutosignTimeout, m.AutosignGrainsDir = filepath.Join(o.KeysDir(),
		"minions_autosign"), o.AutosignTimeout, o.AutosignGrainsDir
	m.PermissivePkiAccess, m.MaxMinions, m.MaxPendingKeys, m.AuthEvents = o.PermissivePkiAccess,
		o.MaxMinions, o.MaxPendingKeys, o.AuthEvents
	m.MaxPendingKeysPerSource, m.UnknownKeyProcessors = o.MaxPendingKeysPerSource,
		o.UnknownKeyProcessors
	m.JobCache, m.StoreEndTime = o.JobCache, o.JobCacheStoreEndtime
	m.RequireMinionSignMessages, m.DropMessagesSignatureFail = o.RequireMinionSignMessages,
		o.DropMessagesSignatureFail
	m.MinionDataCache, m.MinionDataCacheEvents, m.EnforceMineCache = o.MinionDataCache,
		o.MinionDataEvents, o.EnforceMineCache
	m.PillarCache = o.PillarCache
	m.Peer, _ = Value(o.Peer).(value.Map)
	m.PeerRun, _ = Value(o.PeerRun).(value.Map)
	m.Nodegroups, _ = Value(o.Nodegroups).(value.Map)
	m.Timeout, m.FileRecv, m.FileRecvMaxSize = o.Timeout, o.FileRecv, int64(o.FileRecvMaxSize)<<20
	m.AllowMinionKeyRevoke, m.PreserveMinionCache = o.AllowMinionKeyRevoke, o.PreserveMinionCache
	m.SignPubMessages, m.PublishSigningAlgorithm = o.SignPubMessages, o.PublishSigningAlgorithm
	m.ClearCommands, m.MasterUser = o.EnableClearCommands, o.User
	m.ZmqFiltering, m.OrderMasters, m.PublishRetry = o.ZmqFiltering, o.OrderMasters, o.PublishRetry
	m.Syndics = o.Syndics
	m.FileRecvPerDay, m.JobsPerHour = int64(o.FileRecvMaxDaily)<<20, int64(o.MinionJobsMaxHourly)
	m.UniqueJID = o.UniqueJID
	if get, ok := Value(o.Extra["mine_get"]).(value.Map); ok {
		m.MineGet = get
	}
	m.ExtJobCache, _ = o.Extra["ext_job_cache"].(string)
	if acts, ok := o.Extra["auth_events_autosign_grains"].([]any); ok {
		for _, a := range acts {
			if act, ok := a.(string); ok {
				m.AuthEventsAutosignGrains = append(m.AuthEventsAutosignGrains, act)
			}
		}
	}
	if id, ok := o.Extra["master_id"].(string); ok {
		m.MasterID = id
	}
	m.FileEnvs = func() []string {
		envs := make([]string, len(o.FileRoots))
		for i, e := range o.FileRoots {
			envs[i] = e.Name
		}
		return envs
	}
	m.MasterOpts = value.Map{
		{Key: "top_file_merging_strategy", Value: o.TopFileMergingStrategy},
		{Key: "env_order", Value: Value(o.EnvOrder)},
		{Key: "default_top", Value: o.DefaultTop}, {Key: "renderer", Value: o.Renderer},
		{Key: "failhard", Value: o.Failhard},
		{Key: "state_top", Value: o.StateTop},
		{Key: "state_top_saltenv", Value: textOrNil(o.StateTopSaltenv)},
		{Key: "nodegroups", Value: Value(o.Nodegroups)},
		{Key: "state_auto_order", Value: o.StateAutoOrder},
		{Key: "state_events", Value: o.StateEvents},
		{Key: "state_aggregate", Value: Value(o.StateAggregate)},
		{Key: "jinja_env", Value: Value(o.JinjaEnv)},
		{Key: "jinja_sls_env", Value: Value(o.JinjaSLSEnv)},
		{Key: "jinja_lstrip_blocks", Value: o.JinjaLstripBlocks},
		{Key: "jinja_trim_blocks", Value: o.JinjaTrimBlocks},
	}
	var err error
	if m.MasterSignKey, err = signKey(o); err != nil {
		return m, err
	}
	if o.MasterSignPubkey && o.MasterUsePubkeySignature {
		b, err := os.ReadFile(o.PubkeySignatureFile())
		if errors.Is(err, fs.ErrNotExist) && o.MasterPubkeySignature == "" {
			// the name in 3006 and 3007
			old, failed := os.ReadFile(filepath.Join(o.PkiDir, "master_pubkey_signature"))
			if failed == nil {
				b, err = old, nil
			}
		}
		if err != nil {
			return m,
				fmt.Errorf("read master_pubkey_signature: %w; salt-key --gen-signature --auto-create makes it", err)
		}
		m.PubkeySignature = strings.TrimSpace(string(b))
	}
	return m, nil
}

func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// signKey reads the pair of master_sign_pubkey. If there is none it makes one, as Salt does.
func signKey(o *config.Options) (*wire.PrivateKey, error) {
	if !o.MasterSignPubkey {
		return nil, nil
	}
	path := filepath.Join(o.PkiDir, o.MasterSignKeyName+".pem")
	b, err := os.ReadFile(path)
	if err == nil {
		return wire.ParsePrivateKey(b, o.SigningKeyPass.Reveal())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read master_sign_pubkey key: %w", err)
	}
	k, err := wire.GeneratePrivateKey(o.KeySize)
	if err != nil {
		return nil, fmt.Errorf("make master_sign_pubkey key: %w", err)
	}
	if err := cluster.WriteKeyPair(path, k, o.SigningKeyPass.Reveal()); err != nil {
		return nil, fmt.Errorf("make master_sign_pubkey key: %w", err)
	}
	return k, nil
}
