package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"

	"clustermaster/config"
	"clustermaster/hashring"
	"clustermaster/internal/origin"
	"clustermaster/internal/yaml11"
	"clustermaster/keystore"
	"clustermaster/salt/target"
	"clustermaster/serve/fileserver"
	"clustermaster/serve/master"
	"clustermaster/store/miniondata"
	"clustermaster/transport/minion"
	"clustermaster/wire"
)

// ringPeers are all masters, as the ring store sees them.
type ringPeers struct{ r *rooms }

func (p ringPeers) Self() string         { return p.r.node.Self().Node }
func (p ringPeers) Ring() *hashring.Ring { return p.r.node.Ring() }
func (p ringPeers) Alive(node string) bool {
	return node == p.Self() || p.r.port != nil && p.r.port.Alive(node)
}

func (p ringPeers) Members() []string {
	members := p.r.node.State().Members()
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.Node
	}
	return out
}

func (p ringPeers) Conn(node string) (grpc.ClientConnInterface, error) {
	if p.r.port == nil {
		return nil, fmt.Errorf("connect to %s: this master stands alone", node)
	}
	return p.r.port.Conn(node)
}

// acquaintance is how long after its start a master takes those that it has not
// heard yet for reachable: their first heartbeat may still be on its way.
const acquaintance = 3 * time.Second

// nearPeers are the masters that can be reached now: those that publications and
// interest in events go to. One that serves no minions yet has no subscribers,
// which does no harm.
type nearPeers struct{ ringPeers }

func (p nearPeers) Members() []string {
	fresh := time.Since(p.r.began) < acquaintance
	var out []string
	for _, m := range p.r.node.Members() {
		if m.Reachable || fresh && m.LastContact.IsZero() {
			out = append(out, m.Node)
		}
	}
	return out
}

// requests passes a request from the socket to the master.
type requests struct{ m *master.Master }

func (h requests) Handle(ctx context.Context, r minion.Request) ([]byte, error) {
	return h.m.Handle(ctx, master.Request{Payload: r.Payload, Remote: r.Remote, Buffer: r.Buffer, Sender: r.Sender})
}

// requestData keeps what minions send.
type requestData struct{ *miniondata.Data }

func (d requestData) MergeMine(ctx context.Context, id string, data wire.Map, clear bool) error {
	return overQuota(d.Data.MergeMine(ctx, id, data, clear))
}

func (d requestData) SetPillar(ctx context.Context, id, pillarenv string, pillar wire.Map) error {
	return overQuota(d.Data.SetPillar(ctx, id, pillarenv, pillar))
}

func overQuota(err error) error {
	if errors.Is(err, miniondata.ErrQuota) {
		return fmt.Errorf("%w: %w", master.ErrQuota, err)
	}
	return err
}

// subscribers passes publications to this master's publish sessions.
type subscribers struct{ *minion.PubServer }

func (s subscribers) Publish(p master.Publication) int {
	return s.PubServer.Publish(minion.Publication{Topics: p.Topics, Payload: p.Payload, JID: p.JID, Hold: p.Hold})
}

// targets is what matching knows of minions.
type targets struct{ r *rooms }

func (t targets) AcceptedIDs() []string { return t.r.keys.AcceptedIDs() }
func (t targets) DataCache() bool       { return t.r.opts.MinionDataCache }

func (t targets) Ask(ctx context.Context, q target.Question, fn func(id string, hits target.Hits)) (string, error) {
	cover, err := t.r.data.Ask(ctx, q, fn)
	return cover.String(), err
}

func (t targets) Nodegroup(name string) (any, bool) {
	v, ok := t.r.opts.Nodegroups.Get(name)
	return wireValue(v), ok
}

// wireValue turns a value of the configuration into one of the wire: beside what YAML has there are lists of texts, tables and secrets.
func wireValue(v any) any {
	switch x := v.(type) {
	case yaml11.Map:
		m := make(wire.Map, len(x))
		for i, p := range x {
			m[i] = wire.Pair{Key: wireValue(p.Key), Value: wireValue(p.Value)}
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = wireValue(e)
		}
		return l
	case []string:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = e
		}
		return l
	case map[string]any:
		m := make(wire.Map, 0, len(x))
		for k, e := range x {
			m = append(m, wire.Pair{Key: k, Value: wireValue(e)})
		}
		return m
	case config.Secret:
		return "[redacted]"
	}
	return yaml11.ToWire(v)
}

func fileOptions(o *config.Options) fileserver.Options {
	f := fileserver.Options{
		IgnoreRegex: o.FileIgnoreRegex, IgnoreGlob: o.FileIgnoreGlob, FollowSymlinks: o.FileserverFollowSymlinks,
		IgnoreSymlinks: o.FileserverIgnoreSymlinks, HashType: o.HashType, BufferSize: o.FileBufferSize,
	}
	for _, e := range o.FileRoots {
		f.Roots = append(f.Roots, fileserver.Env{Name: e.Name, Roots: e.Dirs})
	}
	return f
}

// decodedTimes is how many times max_frame_size a minion's request may take when it is decoded: text takes about three times
// its length, long lists of small numbers more than ten times.
const decodedTimes = 4

// masterOptions turns the configuration into the request handler's.
func masterOptions(o *config.Options) (master.Options, error) {
	m := master.DefaultOptions()
	m.ID, m.PublishPort = o.ID, o.PublishPort
	m.MinimumAuthVersion, m.RequestServerTTL = o.MinimumAuthVersion, o.RequestServerTTL
	m.MaxDecoded = decodedTimes * int64(o.MaxFrameSize)
	m.AutoAccept, m.OpenMode = o.AutoAccept, o.OpenMode
	m.AutosignFile, m.AutorejectFile = o.AutosignFile, o.AutorejectFile
	keys := o.PkiDir
	if o.ClusterPkiDir != "" {
		keys = o.ClusterPkiDir
	}
	m.AutosignDir, m.AutosignTimeout, m.AutosignGrainsDir = filepath.Join(keys, "minions_autosign"), o.AutosignTimeout, o.AutosignGrainsDir
	m.PermissivePkiAccess, m.MaxMinions, m.MaxPendingKeys, m.AuthEvents = o.PermissivePkiAccess, o.MaxMinions, o.MaxPendingKeys, o.AuthEvents
	m.MaxPendingKeysPerSource, m.UnknownKeyProcessors = o.MaxPendingKeysPerSource, o.UnknownKeyProcessors
	m.JobCache, m.StoreEndTime = o.JobCache, o.JobCacheStoreEndtime
	m.RequireMinionSignMessages, m.DropMessagesSignatureFail = o.RequireMinionSignMessages, o.DropMessagesSignatureFail
	m.MinionDataCache, m.MinionDataCacheEvents, m.EnforceMineCache = o.MinionDataCache, o.MinionDataEvents, o.EnforceMineCache
	m.PillarCache = o.PillarCache
	m.Peer, _ = wireValue(o.Peer).(wire.Map)
	m.PeerRun, _ = wireValue(o.PeerRun).(wire.Map)
	m.Nodegroups, _ = wireValue(o.Nodegroups).(wire.Map)
	m.Timeout, m.FileRecv, m.FileRecvMaxSize = o.Timeout, o.FileRecv, int64(o.FileRecvMaxSize)<<20
	m.AllowMinionKeyRevoke, m.PreserveMinionCache = o.AllowMinionKeyRevoke, o.PreserveMinionCache
	m.SignPubMessages, m.PublishSigningAlgorithm = o.SignPubMessages, o.PublishSigningAlgorithm
	m.ClearCommands, m.MasterUser = o.EnableClearCommands, o.User
	m.ZmqFiltering, m.OrderMasters, m.PublishRetry = o.ZmqFiltering, o.OrderMasters, o.PublishRetry
	m.Syndics = o.Syndics
	m.FileRecvPerDay, m.JobsPerHour = int64(o.FileRecvMaxDaily)<<20, int64(o.MinionJobsMaxHourly)
	m.UniqueJID = o.UniqueJID
	if get, ok := wireValue(o.Extra["mine_get"]).(wire.Map); ok {
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
	m.MasterOpts = wire.Map{
		{Key: "top_file_merging_strategy", Value: o.TopFileMergingStrategy}, {Key: "env_order", Value: wireValue(o.EnvOrder)},
		{Key: "default_top", Value: o.DefaultTop}, {Key: "renderer", Value: o.Renderer}, {Key: "failhard", Value: o.Failhard},
		{Key: "state_top", Value: o.StateTop}, {Key: "state_top_saltenv", Value: textOrNil(o.StateTopSaltenv)},
		{Key: "nodegroups", Value: wireValue(o.Nodegroups)}, {Key: "state_auto_order", Value: o.StateAutoOrder},
		{Key: "state_events", Value: o.StateEvents}, {Key: "state_aggregate", Value: wireValue(o.StateAggregate)},
		{Key: "jinja_env", Value: wireValue(o.JinjaEnv)}, {Key: "jinja_sls_env", Value: wireValue(o.JinjaSLSEnv)},
		{Key: "jinja_lstrip_blocks", Value: o.JinjaLstripBlocks}, {Key: "jinja_trim_blocks", Value: o.JinjaTrimBlocks},
	}
	var err error
	if m.MasterSignKey, err = signKey(o); err != nil {
		return m, err
	}
	if o.MasterSignPubkey && o.MasterUsePubkeySignature {
		path := o.MasterPubkeySignature
		if !filepath.IsAbs(path) {
			path = filepath.Join(o.PkiDir, path)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return m, fmt.Errorf("read master_pubkey_signature: %w; salt-key --gen-signature --auto-create makes it", err)
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

// masterKeys is the key store, with what a minion may do to its own key.
type masterKeys struct {
	*keystore.Store
	operators *operators
}

// Revoke deletes a minion's key at its own wish.
func (k masterKeys) Revoke(ctx context.Context, id string) error {
	o := k.operators.opts
	ctx = origin.With(ctx, origin.Origin{User: id, From: "minion", Order: "revoke_auth", Automatic: true})
	_, _, err := k.operators.changeKeys(ctx, "delete", []string{id}, []keystore.State{keystore.Accepted}, o.PreserveMinionCache, o.RotateAESKey)
	return err
}
