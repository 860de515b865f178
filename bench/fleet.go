package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"clustermaster/dev"
	"clustermaster/gather"
	"clustermaster/operator"
	"clustermaster/simminion"
	"clustermaster/wire"
)

// fleetPrefix begins the ids of the fleet.
const fleetPrefix = "sim"

// The fleet's minions try again 1 to 3 s after a loss, where Salt's default is 1 to 11 s.
const (
	reconDefault = 1000 * time.Millisecond
	reconMax     = 2000 * time.Millisecond
)

// fleetReleases behave differently when a connection is lost, so the fleet has some of each.
var fleetReleases = []string{"3006.28", "3007.15", "3008.3"}

const (
	fleetPatience    = 60 * time.Second // for all minions to start
	failoverPatience = 90 * time.Second // for all to answer after the leader's death
	pingTimeout      = 15 * time.Second // of one test.ping
	pings            = 5
)

// fleet is a number of simulated minions behind a balancer over a set of own masters.
type fleet struct {
	own   *own
	n     int
	stops []func()
}

// startFleet starts the balancer and the minions and waits until all have started.
func startFleet(ctx context.Context, o *own, n int, keys []*keyPair) (*fleet, error) {
	f := &fleet{own: o, n: n}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	f.stops = append(f.stops, cancel, wg.Wait)

	log := slog.New(slog.DiscardHandler)
	failed := make(chan error, 2)
	wg.Go(func() {
		if err := dev.NewBalancer(o.hosts(), healthPort, log).Serve(ctx, o.front, pubPort, reqPort); err != nil {
			failed <- err
		}
	})
	minions, err := newFleet(net.JoinHostPort(o.front, strconv.Itoa(reqPort)), n, keys)
	if err != nil {
		f.stop()
		return nil, err
	}
	wg.Go(func() {
		if err := minions.Run(ctx); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	ready, done := context.WithTimeout(ctx, fleetPatience)
	defer done()
	readiness := make(chan error, 1)
	go func() { readiness <- minions.WaitReady(ready) }()
	select {
	case err = <-readiness:
	case err = <-failed:
	}
	if err != nil {
		f.stop()
		return nil, fmt.Errorf("start simulated minions: %w", err)
	}
	return f, nil
}

// newFleet makes n minions that share the keys.
func newFleet(master string, n int, keys []*keyPair) (*simminion.Fleet, error) {
	pool := make([]*simminion.Key, len(keys))
	for i, k := range keys {
		var err error
		if pool[i], err = simminion.KeyOf(k.private); err != nil {
			return nil, err
		}
	}
	f := new(simminion.Fleet)
	for i := range n {
		m, err := simminion.New(simminion.Config{
			ID: fmt.Sprintf("%s%d", fleetPrefix, i+1), Key: pool[i%len(pool)], Master: master,
			Release: fleetReleases[i%len(fleetReleases)], ReconDefault: reconDefault, ReconMax: reconMax,
		})
		if err != nil {
			return nil, err
		}
		f.Minions = append(f.Minions, m)
	}
	return f, nil
}

func (f *fleet) stop() {
	for _, s := range f.stops {
		s()
	}
}

// ping publishes one test.ping on a master and returns how many minions answered and how long
// the last one took from the publication on.
func (f *fleet) ping(ctx context.Context, m *ownMaster) (answered int, took time.Duration, err error) {
	client, err := operator.Dial(ctx, m.sockDir())
	if err != nil {
		return 0, 0, fmt.Errorf("ping through %s: %w", m.id, err)
	}
	defer client.Close()
	start := time.Now()
	_, err = gather.Run(ctx, client, gather.Publish{Tgt: fleetPrefix + "*", TgtType: "glob", Fun: "test.ping", User: "root"},
		gather.Options{Timeout: pingTimeout}, func(string, gather.Return) {
			answered++
			took = time.Since(start)
		})
	if err != nil {
		err = fmt.Errorf("ping through %s: %w", m.id, err)
	}
	return answered, took, err
}

// medianPing is the median time of some pings that all minions answered.
func (f *fleet) medianPing(ctx context.Context) (time.Duration, error) {
	var took []time.Duration
	for range pings {
		n, d, err := f.ping(ctx, f.own.masters[0])
		if err != nil {
			return 0, err
		}
		if n != f.n {
			return 0, fmt.Errorf("ping of %d minions: %d answered", f.n, n)
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// leader asks a master for the leader.
func (f *fleet) leader(ctx context.Context) (*ownMaster, error) {
	client, err := operator.Dial(ctx, f.own.masters[0].sockDir())
	if err != nil {
		return nil, fmt.Errorf("find the leader: %w", err)
	}
	defer client.Close()
	r, err := client.Run(ctx, operator.RunRequest{Fun: "cluster.members"}, func(string, any) {})
	if err != nil {
		return nil, fmt.Errorf("find the leader: %w", err)
	}
	members, _ := r.Return.(wire.Map)
	id := members.String("leader_id")
	i := slices.IndexFunc(f.own.masters, func(m *ownMaster) bool { return m.id == id })
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
	i := slices.IndexFunc(f.own.masters, func(m *ownMaster) bool { return m != leader })
	survivor := f.own.masters[i]
	killed := time.Now()
	if err := leader.kill(); err != nil {
		return 0, 0, err
	}
	for {
		n, _, err := f.ping(ctx, survivor)
		published++
		if n == f.n {
			return time.Since(killed), published, nil
		}
		if !sleepUntil(ctx, time.Now().Add(100*time.Millisecond)) {
			return 0, published, fmt.Errorf("after the leader's death %d of %d minions answered %d pings within %s: %w", n, f.n, published, failoverPatience, err)
		}
	}
}
