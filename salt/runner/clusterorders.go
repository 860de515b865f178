package runner

import (
	"context"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// RemovalView is the result of removing a peer.
type RemovalView struct {
	ID          string
	Secret      string   // the new cluster_secret; "" if it was kept
	Unconfirmed []string // ids of masters that did not confirm in time
	Warnings    []string // what the operator still has to do
}

// ClusterMembership changes who is a member.
type ClusterMembership interface {
	Remove(ctx context.Context, peer string, keepSecret bool) (RemovalView, error)
	// Allow returns false if the id was not barred.
	Allow(ctx context.Context, id string) (bool, error)
	// Drain sends the peer's minions to other masters, or with on false admits them again. "" is
	// this master; Drain returns the peer's id.
	Drain(ctx context.Context, peer string, on bool) (id string, err error)
}

// ClusterVotes changes who votes and who leads. Callers name a peer by id or address; results have
// the id.
type ClusterVotes interface {
	// Promote returns voter false if the peer gets its vote later, when it has caught up.
	Promote(ctx context.Context, peer string) (id string, voter bool, err error)
	// Demote also returns the number of voters that are left.
	Demote(ctx context.Context, peer string) (id string, left int, err error)
	// TransferLeader makes the peer the leader; "" means the voter with the newest log.
	TransferLeader(ctx context.Context, peer string) (id string, err error)
}

// ClusterSecrets makes new secrets.
type ClusterSecrets interface {
	RotateSecret(ctx context.Context) (secret string, err error)
	// RotateKeys makes a new AES key and a new session secret.
	RotateKeys(ctx context.Context) error
}

// ClusterOrders is all that the orders of the family cluster use.
type ClusterOrders interface {
	ClusterMembership
	ClusterVotes
	ClusterSecrets
}

const (
	newSecretNote = "This is shown once and stored nowhere in clear text: write it into cluster_secret of every " +
		"master's configuration. " +
		"Members need it only to join again; the old one no longer admits anyone."
	keyKnownNote = "It knew the cluster's RSA key, by which minions know their master; that key can't be revoked " +
		"without touching minions. " +
		"If the machine is in wrong hands, see \"A stolen master\" in docs/operations.md."
)

// Orders is the part of the family cluster that changes it.
func Orders(o ClusterOrders) []Function {
	return []Function{
		{
			Name: "cluster.remove", Params: []function.Param{function.Need("peer"),
				function.Opt("keep_secret", false)},
			Doc: `Remove a master for good, at once: its connections end, its id and node key are kept out until
cluster.allow, the secrets of minions' sessions are rotated (minions go on), and so is
cluster_secret unless keep_secret is True.

peer
    id or address of a master that is not the one asked

Example:

    salt-run cluster.remove master3`,
			Run: func(ctx context.Context, c *Call) (any, error) { return remove(ctx, o, c) },
		},
		{
			Name: "cluster.allow", Params: []function.Param{function.Need("peer")},
			Doc: `Let a removed master join again. Its configuration needs the present cluster_secret, and it must
be restarted.

Example:

    salt-run cluster.allow master3`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				id := c.Text("peer")
				changed, err := o.Allow(ctx, id)
				if err != nil {
					return nil, err
				}
				if !changed {
					c.Warn("peer " + id + ": was not kept out; nothing changed")
				}
				return value.Map{{Key: "allowed", Value: id}, {Key: "changed", Value: changed}}, nil
			},
		},
		{
			Name: "cluster.drain", Params: []function.Param{function.Opt("peer", nil)},
			Doc: `Make a master not ready before maintenance: the balancer moves minions to the others, and
leadership goes elsewhere. It stays a member and answers those that still come, also after
restarts, until cluster.undrain.

peer
    id or address; without it the master asked

Example:

    salt-run cluster.drain master2`,
			Run: func(ctx context.Context, c *Call) (any, error) { return drain(ctx, o, c, true) },
		},
		{
			Name: "cluster.undrain", Params: []function.Param{function.Opt("peer", nil)},
			Doc: `End cluster.drain.

Example:

    salt-run cluster.undrain master2`,
			Run: func(ctx context.Context, c *Call) (any, error) { return drain(ctx, o, c, false) },
		},
		{
			Name: "cluster.promote", Params: []function.Param{function.Need("peer")},
			Doc: `Give a learner a vote, as soon as it has caught up; it ends an earlier cluster.demote.

Example:

    salt-run cluster.promote master4`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				id, voter, err := o.Promote(ctx, c.Text("peer"))
				if err != nil {
					return nil, err
				}
				if !voter {
					c.Warn("peer " + id +
						": has not caught up yet; it gets its vote as soon as it has")
				}
				return value.Map{{Key: "promoted", Value: id}, {Key: "voter", Value: voter}}, nil
			},
		},
		{
			Name: "cluster.demote", Params: []function.Param{function.Need("peer")},
			Doc: `Take away a master's vote until cluster.promote. It keeps serving and holding its share of the
data.

Example:

    salt-run cluster.demote master1`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				id, left, err := o.Demote(ctx, c.Text("peer"))
				if err != nil {
					return nil, err
				}
				switch left {
				case 1:
					c.Warn("1 voter is left: its death stops changes of keys and members")
				case 2:
					c.Warn("2 voters are left: the death of either stops changes of keys and members")
				}
				return value.Map{{Key: "demoted", Value: id},
					{Key: "voter_count", Value: int64(left)}}, nil
			},
		},
		{
			Name: "cluster.transfer_leader", Params: []function.Param{function.Opt("peer", nil)},
			Doc: `Make another voter the leader: the named one, or the one with the longest log.

Example:

    salt-run cluster.transfer_leader master2`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				id, err := o.TransferLeader(ctx, c.Text("peer"))
				if err != nil {
					return nil, err
				}
				return value.Map{{Key: "leader_id", Value: id}}, nil
			},
		},
		{
			Name: "cluster.rotate_secret",
			Doc: `Make a new cluster_secret and show it once. The old one is refused at once on every master.
Members keep running; write the new one into their configurations all the same.

Example:

    salt-run cluster.rotate_secret`,
			Run: func(ctx context.Context, _ *Call) (any, error) {
				secret, err := o.RotateSecret(ctx)
				if err != nil {
					return nil, err
				}
				return tellSecret(value.Map{{Key: "cluster_secret", Value: secret},
					{Key: "note", Value: newSecretNote}}), nil
			},
		},
		{
			Name: "cluster.rotate_keys",
			Doc: `Rotate the AES key and the secret of minions' sessions, and give users (enable_clear_commands)
new keys. Minions follow by themselves, and no job is lost.

Example:

    salt-run cluster.rotate_keys`,
			Run: func(ctx context.Context, _ *Call) (any, error) {
				if err := o.RotateKeys(ctx); err != nil {
					return nil, err
				}
				return value.Map{{Key: "rotated", Value: []any{"aes", "session"}}}, nil
			},
		},
	}
}

func remove(ctx context.Context, o ClusterOrders, c *Call) (any, error) {
	r, err := o.Remove(ctx, c.Text("peer"), c.True("keep_secret"))
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		c.Warn(w)
	}
	if len(r.Unconfirmed) > 0 {
		c.Warn("not confirmed in time by " + strings.Join(r.Unconfirmed, ", ") +
			"; until they notice that they hear no leader they may still talk to " + r.ID)
	}
	out := value.Map{{Key: "removed", Value: r.ID}}
	if r.Secret != "" {
		out = append(out, value.Pair{Key: "cluster_secret", Value: r.Secret},
			value.Pair{Key: "note", Value: newSecretNote + " " + keyKnownNote})
	} else {
		out = append(out, value.Pair{Key: "note", Value: keyKnownNote})
	}
	return tellSecret(out), nil
}

// tellSecret keeps the value of cluster_secret out of events and the job cache.
func tellSecret(m value.Map) Told {
	kept := append(value.Map(nil), m...)
	for i := range kept {
		if kept[i].Key == "cluster_secret" {
			kept[i].Value = redacted
		}
	}
	return Told{Value: m, Kept: kept}
}

func drain(ctx context.Context, o ClusterOrders, c *Call, on bool) (any, error) {
	id, err := o.Drain(ctx, c.Text("peer"), on)
	if err != nil {
		return nil, err
	}
	return value.Map{{Key: "peer", Value: id}, {Key: "draining", Value: on}}, nil
}
