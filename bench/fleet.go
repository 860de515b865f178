package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"clustermaster/dev"
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
	fleetPatience     = 150 * time.Second      // for all minions to start: a request that was cut costs one 60 s, as with libzmq; and
	fleetPatienceEach = 200 * time.Millisecond // for each: Salt's own master makes few pillars in a second
	failoverPatience  = 90 * time.Second       // for all to answer after the leader's death
	pingTimeout       = 15 * time.Second       // of one test.ping
	pings             = 5
)

// fleet is a number of simulated minions behind a balancer over a set of own masters.
type fleet struct {
	own   *group
	n     int
	stops []func()
}

// startFleet starts the built-in balancer and the minions and waits until all have started.
func startFleet(ctx context.Context, o *group, n int, keys []*keyPair) (*fleet, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	wg.Go(func() {
		if err := dev.NewBalancer(o.hosts(), healthPort, slog.New(slog.DiscardHandler)).Serve(ctx, o.front, pubPort, reqPort); err != nil {
			failed <- err
		}
	})
	f, err := joinFleet(ctx, o, net.JoinHostPort(o.front, strconv.Itoa(reqPort)), n, keys)
	select {
	case balancing := <-failed:
		err = balancing
	default:
	}
	if err != nil {
		if f != nil {
			f.stop()
		}
		cancel()
		wg.Wait()
		return nil, err
	}
	f.stops = append(f.stops, cancel, wg.Wait)
	return f, nil
}

// joinFleet starts the minions and waits until all have started. addr is the request port that they know.
func joinFleet(ctx context.Context, o *group, addr string, n int, keys []*keyPair) (*fleet, error) {
	minions, err := newFleet(addr, n, keys)
	if err != nil {
		return nil, err
	}
	f := &fleet{own: o, n: n}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	f.stops = append(f.stops, cancel, wg.Wait)
	ended := make(chan error, 1)
	wg.Go(func() { ended <- minions.Run(ctx) })
	ready, done := context.WithTimeout(ctx, fleetPatience+time.Duration(n)*fleetPatienceEach)
	defer done()
	readiness := make(chan error, 1)
	go func() { readiness <- minions.WaitReady(ready) }()
	select {
	case err = <-readiness:
	case err = <-ended:
		if err == nil {
			err = errors.New("all ended at once")
		}
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

// medianPing is the median time of some pings that all minions answered.
func (f *fleet) medianPing(ctx context.Context) (time.Duration, error) {
	var took []time.Duration
	for range pings {
		n, d, err := f.own.product.ping(ctx, f.own.masters[0])
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
	members, _ := r.Return.(wire.Map)
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
		n, _, err := f.own.product.ping(ctx, survivor)
		published++
		if n == f.n {
			return time.Since(killed), published, nil
		}
		if !sleepUntil(ctx, time.Now().Add(100*time.Millisecond)) {
			return 0, published, fmt.Errorf("after the leader's death %d of %d minions answered %d pings within %s: %w", n, f.n, published, failoverPatience, err)
		}
	}
}
