package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/value"
)

// failoverPatience is for all minions to answer after the leader's death.
const failoverPatience = 90 * time.Second

// leader asks a master for the leader.
func (f *fleet) leader(ctx context.Context) (*masterProcess, error) {
	client, err := operator.Dial(ctx, f.own.masters[0].sockDir())
	if err != nil {
		return nil, fmt.Errorf("find the leader: %w", err)
	}
	defer client.Close()
	r, err := client.Run(ctx, operator.RunRequest{Fun: "cluster.members"}, func(string, any) {})
	if err != nil {
		return nil, fmt.Errorf("find the leader: %w", err)
	}
	members, _ := r.Return.(value.Map)
	id := members.String("leader_id")
	i := slices.IndexFunc(f.own.masters, func(m *masterProcess) bool { return m.id == id })
	if i < 0 {
		return nil, fmt.Errorf("find the leader: cluster.members says %q", id)
	}
	return f.own.masters[i], nil
}

// failover kills the leader and returns the time from then until every minion has answered one
// test.ping published on a survivor, and how many pings were published for that.
func (f *fleet) failover(ctx context.Context) (took time.Duration, published int, err error) {
	ctx, cancel := context.WithTimeout(ctx, failoverPatience)
	defer cancel()
	leader, err := f.leader(ctx)
	if err != nil {
		return 0, 0, err
	}
	i := slices.IndexFunc(f.own.masters, func(m *masterProcess) bool { return m != leader })
	survivor := f.own.masters[i]
	killed := time.Now()
	if err := leader.kill(); err != nil {
		return 0, 0, err
	}
	for {
		n, _, err := f.own.product.ping(ctx, survivor,
			ping{tgt: fleetPrefix + "*", tgtType: "glob", minions: f.n})
		published++
		if n == f.n {
			return time.Since(killed), published, nil
		}
		if !sleepUntil(ctx, time.Now().Add(100*time.Millisecond)) {
			return 0, published,
				fmt.Errorf("after the leader's death %d of %d minions answered %d pings within %s: %w", n, f.n, published, failoverPatience, err)
		}
	}
}
