package main

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/config/settings"
	"clustermaster/keystore"
	"clustermaster/salt/target"
	"clustermaster/serve/master"
	"clustermaster/store/miniondata"
	"clustermaster/transport/minion"
	"clustermaster/value"
)

// requests passes a request from the socket to the master.
type requests struct{ m *master.Master }

func (h requests) Handle(ctx context.Context, r minion.Request) ([]byte, error) {
	return h.m.Handle(ctx, master.Request{Payload: r.Payload, Remote: r.Remote, Buffer: r.Buffer,
		Sender: r.Sender})
}

// requestData keeps what minions send.
type requestData struct{ *miniondata.Data }

func (d requestData) MergeMine(ctx context.Context, id string, data value.Map, clear bool) error {
	return overQuota(d.Data.MergeMine(ctx, id, data, clear))
}

func (d requestData) SetPillar(ctx context.Context, id, pillarenv string, pillar value.Map) error {
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
	return s.PubServer.Publish(minion.Publication{Topics: p.Topics, Payload: p.Payload, JID: p.JID,
		Hold: p.Hold})
}

// targets is what matching knows of minions.
type targets struct {
	keys       *keystore.Store
	data       *miniondata.Data
	cached     bool // the option minion_data_cache
	nodegroups func(name string) (any, bool)
}

func (r *process) targets() targets {
	return targets{r.keys, r.data, r.opts.MinionDataCache, r.nodegroup}
}

// nodegroup is a group of the option nodegroups.
func (r *process) nodegroup(name string) (any, bool) {
	o := r.opts
	if now := r.groups.Load(); now != nil {
		o = now
	}
	v, ok := o.Nodegroups.Get(name)
	return settings.Value(v), ok
}

func (t targets) AcceptedIDs() []string { return t.keys.AcceptedIDs() }
func (t targets) DataCache() bool       { return t.cached }

func (t targets) Ask(ctx context.Context, q target.Question,
	fn func(id string, hits target.Hits)) (string, error) {
	cover, err := t.data.Ask(ctx, q, fn)
	return cover.String(), err
}

func (t targets) Nodegroup(name string) (any, bool) { return t.nodegroups(name) }
