package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// UpgradeDeps is what a rolling upgrade uses.
type UpgradeDeps struct {
	Status  ClusterStatus
	Members ClusterMembership
	// Restart runs the operator's command that installs a release on a peer and restarts it there,
	// and returns its output; nil without a command: then the operator does it by hand.
	Restart func(ctx context.Context, peer PeerView, release string) (output string, err error)
	Every   time.Duration // between checks; 0 means a second
}

// Upgrades is the part of the family cluster that brings a new release to all masters.
func Upgrades(d UpgradeDeps) []Function {
	if d.Every <= 0 {
		d.Every = time.Second
	}
	return []Function{{
		Name: "cluster.upgrade", Params: []function.Param{function.Need("release"),
			function.Opt("timeout", 600), function.Opt("test", false)},
		Doc: `Upgrade the other masters to a release, one after the other: drain it, restart it with the
option cluster_upgrade_command (without it, say what to do and wait), wait until it runs the
release and serves, end the drain, wait until the cluster is healthy. It stops at the first
problem. The master asked is left: run it on another one for that. See docs/upgrade.md.

release
    what cluster.members is to show as version

timeout
    seconds that each step may take

test
    True: show the order, and change nothing

Example:

    salt-run cluster.upgrade 0.2.0`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			limit, err := c.Seconds("timeout", 10*time.Minute)
			if err != nil {
				return nil, err
			}
			u := &rollingUpgrade{UpgradeDeps: d, release: c.Text("release"), limit: limit,
				print: c.Print}
			return u.run(ctx, c.True("test"))
		},
	}}
}

type rollingUpgrade struct {
	UpgradeDeps
	release string
	limit   time.Duration // of one step
	print   func(line string)
	done    []string
}

func (u *rollingUpgrade) run(ctx context.Context, test bool) (any, error) {
	v, err := u.Status.View(ctx)
	if err != nil {
		return nil, err
	}
	todo, left, err := u.order(v)
	if err != nil {
		return nil, err
	}
	result := func() value.Map {
		return value.Map{{Key: "release", Value: u.release},
			{Key: "upgraded", Value: value.Texts(u.done)}, {Key: "left", Value: value.Texts(left)}}
	}
	if test {
		names := []string{}
		for _, p := range todo {
			names = append(names, p.ID)
		}
		return append(result(), value.Pair{Key: "would_upgrade", Value: value.Texts(names)}), nil
	}
	for _, p := range todo {
		if err := u.one(ctx, p); err != nil {
			return nil, fmt.Errorf("upgrade stops at %s, upgraded so far: %s; %w", p.ID,
				listOr(u.done, "none"), err)
		}
		u.done = append(u.done, p.ID)
	}
	if len(left) > 0 {
		u.print(fmt.Sprintf("%s is this master: run salt-run cluster.upgrade %s on another one to upgrade it", left[0], u.release))
	}
	return result(), nil
}

// order lists the peers to upgrade, the leader last, because each change of leaders briefly
// interrupts changes. left names this master if it does not run the release.
func (u *rollingUpgrade) order(v ClusterView) (todo []PeerView, left []string, err error) {
	switch {
	case len(v.Peers) == 0:
		return nil, nil,
			errors.New("this master is not a cluster member: install the release and restart it")
	case u.release == "" || strings.ContainsAny(u.release, " \t\n"):
		return nil, nil, fmt.Errorf("release %q: name the release as cluster.members will show it",
			u.release)
	}
	for _, p := range v.Peers {
		switch {
		case p.Version == u.release:
		case p.ID == v.ID:
			left = append(left, p.ID)
		default:
			todo = append(todo, p)
		}
	}
	slices.SortStableFunc(todo, func(a, b PeerView) int {
		if (a.ID == v.Leader) != (b.ID == v.Leader) {
			if a.ID == v.Leader {
				return 1
			}
			return -1
		}
		return strings.Compare(a.ID, b.ID)
	})
	return todo, left, nil
}

// one upgrades one master. If it fails, the error says in which state the master is.
func (u *rollingUpgrade) one(ctx context.Context, p PeerView) error {
	if err := u.healthy(ctx); err != nil {
		return fmt.Errorf("the cluster is not healthy, so %s was left alone: %w", p.ID, err)
	}
	u.print(p.ID + ": drain")
	if _, err := u.Members.Drain(ctx, p.ID, true); err != nil {
		return fmt.Errorf("it was not drained: %w", err)
	}
	if err := u.replace(ctx, p); err != nil {
		return fmt.Errorf("it stays drained until salt-run cluster.undrain %s: %w", p.ID, err)
	}
	if _, err := u.Members.Drain(ctx, p.ID, false); err != nil {
		return fmt.Errorf("it runs the release, and stays drained until salt-run cluster.undrain %s: %w", p.ID, err)
	}
	if err := u.healthy(ctx); err != nil {
		return fmt.Errorf("it runs the release, but the cluster is not healthy: %w", err)
	}
	u.print(p.ID + ": upgraded")
	return nil
}

// replace brings the release to a drained master.
func (u *rollingUpgrade) replace(ctx context.Context, p PeerView) error {
	if err := u.until(ctx, "it is drained", func(v ClusterView) string {
		if now, ok := peerOf(v, p.ID); !ok || now.Ready {
			return "it is ready still"
		}
		return ""
	}); err != nil {
		return err
	}
	if u.Restart == nil {
		u.print(fmt.Sprintf("%s: install release %s on it (%s) and restart salt-master there; this waits %v for it", p.ID, u.release, p.Addr, u.limit))
	} else {
		u.print(p.ID + ": run cluster_upgrade_command")
		short, cancel := context.WithTimeout(ctx, u.limit)
		out, err := u.Restart(short, p, u.release)
		cancel()
		for line := range strings.Lines(out) {
			u.print(p.ID + ": " + strings.TrimRight(line, "\n"))
		}
		if err != nil {
			return fmt.Errorf("cluster_upgrade_command: %w", err)
		}
	}
	return u.until(ctx, "it runs release "+u.release+" and serves", func(v ClusterView) string {
		now, ok := peerOf(v, p.ID)
		switch {
		case !ok:
			return "it is no longer a member"
		case !now.Reachable:
			return "it is not in contact"
		case now.Version != u.release:
			return "it runs release " + now.Version
		case !now.Serving || now.Voter != p.Voter:
			return "it is " + now.State
		}
		return ""
	})
}

// healthy waits until cluster.health reports no problem.
func (u *rollingUpgrade) healthy(ctx context.Context) error {
	return u.until(ctx, "the cluster is healthy", func(v ClusterView) string {
		ring, err := u.Status.Ring(ctx)
		if err != nil {
			return err.Error()
		}
		problems, _ := healthMap(v, ring).Get("problems")
		list, _ := problems.([]any)
		if len(list) == 0 {
			return ""
		}
		return fmt.Sprint(list[0])
	})
}

// until waits for a condition; missing returns what is missing, or "" once the condition holds.
func (u *rollingUpgrade) until(ctx context.Context, what string,
	missing func(ClusterView) string) error {
	ctx, cancel := context.WithTimeout(ctx, u.limit)
	defer cancel()
	tick := time.NewTicker(u.Every)
	defer tick.Stop()
	for {
		v, err := u.Status.View(ctx)
		last := ""
		if err != nil {
			last = err.Error()
		} else if last = missing(v); last == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited %v until %s: %s", u.limit, what, last)
		}
	}
}

func peerOf(v ClusterView, id string) (PeerView, bool) {
	i := slices.IndexFunc(v.Peers, func(p PeerView) bool { return p.ID == id })
	if i < 0 {
		return PeerView{}, false
	}
	return v.Peers[i], true
}

func listOr(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}
