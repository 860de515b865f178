package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"clustermaster/config/settings"
	"clustermaster/hashring"
	"clustermaster/internal/origin"
	"clustermaster/keystore"
	"clustermaster/salt/target"
	"clustermaster/serve/master"
	"clustermaster/store/miniondata"
	"clustermaster/transport/minion"
	"clustermaster/value"
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
	return settings.Value(v), ok
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
