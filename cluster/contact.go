package cluster

import (
	"context"
	"sync"
	"time"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/level"
)

// Contact between members.
const (
	contactEvery   = time.Second
	contactTimeout = time.Second
)

// contact is what a member said when it last answered.
type contact struct {
	at      time.Time // of the last answer
	applied uint64
	serving bool
	ready   bool
	sync    SyncState
	level   int // the highest level that it supports
	clock   reading
	backup  time.Time // of the last good scheduled backup that it knows of; zero: none
	alarms  []string
	// digest of its extension_modules; "": not reported
	extensions string
	check      checkpoint

	compared uint64 // Raft index at which its state was last compared with this master's
	differs  bool   // the states differed there

	clockWarned time.Time // when the log last said that its clock (or this master's own) is off
}

// contact asks every other member for its state once a second.
func (n *Node) contact(ctx context.Context) error {
	tick := time.NewTicker(contactEvery)
	defer tick.Stop()
	for {
		var wg sync.WaitGroup
		for _, m := range n.state.Members() {
			if m.Node == n.self.Node || !n.port.Alive(m.Node) {
				continue
			}
			wg.Go(func() { n.ask(ctx, m.Node) })
		}
		wg.Wait()
		n.followClocks()
		n.compareStates()
		n.m.peers.tell(n)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ask asks a member for its state, and reports whether it answered.
func (n *Node) ask(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	client, err := n.client(node)
	if err != nil {
		return false
	}
	asked := n.cfg.Now()
	gain := n.clockGain(asked)
	r, err := client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		return false // Alive shows the failure within a second
	}
	now, clock := time.Now(), readClock(r.GetNow(), asked, n.cfg.Now(), gain)
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.contacts[node]
	c.at, c.applied, c.serving, c.ready, c.sync = now, r.GetApplied(), r.GetServing(), r.GetReady(),
		fromSyncStatus(r.GetSync())
	c.clock, c.level = clock, max(int(r.GetLevel()), level.Base)
	c.backup, c.alarms = fromSeconds(r.GetBackup()), boundAlarms(r.GetAlarms())
	c.extensions = boundDigest(r.GetExtensions())
	c.check = checkpoint{r.GetChecked(), string(r.GetChecksum())}
	n.contacts[node] = c
	return true
}

// answering asks the voters other than one node. It returns how many there are, how many of them
// answer, and whether one that does not is likely to answer soon.
func (n *Node) answering(ctx context.Context, without string) (reachable, left int, awaited bool) {
	var mu sync.Mutex // guards reachable and awaited
	var all sync.WaitGroup
	for node := range n.voters() {
		if node == without {
			continue
		}
		left++
		all.Go(func() {
			answers := node == n.self.Node || n.ask(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			if answers {
				reachable++
			} else if n.near(node) {
				awaited = true
			}
		})
	}
	all.Wait()
	return reachable, left, awaited
}

// mayServe reports whether a member may be acting on its state now: it answers, or it answered so
// recently that it may not have noticed the leader's silence. A member that this process never
// heard counts as heard at the start. One that has led, or followed another leader, may have been
// ready by what only those heard of each other, so all count as heard when the leader changed.
func (n *Node) mayServe(node string) bool {
	if n.port.Alive(node) {
		return true
	}
	heard := n.port.LastHeard(node)
	if heard.Before(n.started) {
		heard = n.started
	}
	if r := n.reign.Load(); r != nil && heard.Before(r.since) {
		heard = r.since
	}
	return time.Since(heard) < n.cfg.StaleLimit+2*contactEvery
}

func (n *Node) client(node string) (clusterpb.ClusterClient, error) {
	conn, err := n.port.Conn(node)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewClusterClient(conn), nil
}
