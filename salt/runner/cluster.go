package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"clustermaster/value"
)

// ClusterView is the cluster as this master sees it after a read index from the leader.
type ClusterView struct {
	ID string // of this master
	// log index of the last change of members; -1 for a master that is in no cluster
	MembershipIndex int64
	Leader          string // id; "" if this master has no contact to a leader
	Term            uint64
	// why it is not in the cluster that cluster_id names; "" for a member, or without cluster_id
	Apart string
	// all members, this one included; empty for a master that is in no cluster
	Peers []PeerView
	// ids of voters without contact for longer than cluster_voter_timeout
	Unhealthy []string
	Demoted   []string // ids demoted less than cluster_demote_cooldown ago
	Barred    []string // ids that were removed and are kept out
	// of the cluster: the format in which records are written; 0 for a master that is in no cluster
	Level        int
	ClocksDiffer bool     // and it is unknown which one is right
	Supported    int      // the highest level that this master supports
	Differing    []string // ids of members whose replicated state is not this master's
	Odd          bool     // and they are the majority, so replace this master
	Alarms       []string // reports of members: id, colon, a line
	Note         string   // a problem, such as a lost quorum; "" if there is none
}

// PeerView describes one member.
type PeerView struct {
	ID          string
	Addr        string // host:port of the peer port
	Version     string
	Level       int    // the highest that it supports; 0: unknown
	Phase       string // new, founding, admitted, syncing, member, removed
	State       string // joining, syncing, learner, voter, draining, unreachable
	Voter       bool
	Reachable   bool
	Serving     bool          // its minion ports are open
	Ready       bool          // and its state is fresh: the balancer sends it minions
	Lag         uint64        // log entries behind the leader
	ClockAhead  time.Duration // of the clocks of most masters
	ClockKnown  bool
	ClockLimit  time.Duration // a clock that is further off is wrong
	LastContact time.Duration // since this master last heard from it; negative if never
	Extensions  string        // digest of its extension_modules; "": unknown
	More        value.Map     // fields of other packages, shown after the rest
}

// RingView describes the ring that the running master uses.
type RingView struct {
	Clustered       bool
	Nodes           []string // ids of owners
	VirtualNodes    int      // points of each node on the circle
	Epoch           uint64
	Replicas        int
	Partitions      int
	Shares          map[string]float64 // id to its share of all partitions, 0 to 1
	Transfers       []TransferView
	TransferBytes   int64 // fetched so far, by all masters
	HintsPending    int64
	UnderReplicated int64
	Refilling       []string          // ids of masters that fetch their records anew
	Refusing        map[string]string // id to the reason why it takes no data now
}

// TransferView is what one master still has to fetch for the newest ring.
type TransferView struct {
	To         string
	Partitions int
	Fetched    int64         // bytes so far
	Expected   int64         // bytes in all, estimated; 0: not yet known
	ETA        time.Duration // negative: can't be judged yet
}

// ClusterStatus describes members and ring.
type ClusterStatus interface {
	View(ctx context.Context) (ClusterView, error)
	Ring(ctx context.Context) (RingView, error)
}

// Cluster is the read-only part of the family cluster.
func Cluster(status ClusterStatus) []Function {
	return []Function{
		{
			Name: "cluster.members",
			Doc: `List the masters of this cluster: voters, learners and the leader, and for each peer its
address, state, version, level, lag (log entries), the seconds since it was last heard, by how
many its clock is ahead, and the digest of its extension_modules. States: joining, syncing,
learner, voter, draining, unreachable. Phases, from a new master to one that was removed: new,
founding, admitted, syncing, member, removed.

Example:

    salt-run cluster.members`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				v, err := status.View(ctx)
				if err != nil {
					return nil, err
				}
				if v.Note != "" {
					c.Warn(v.Note)
				}
				return membersMap(v), nil
			},
		},
		{
			Name: "cluster.health",
			Doc: `Tell whether all is well: every master ready, a quorum with room for one death, every record
with its copies. The exit code is 1 and problems lists what is wrong otherwise. Two voters have no
room for a death: a warning says so.

Example:

    salt-run cluster.health`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				v, err := status.View(ctx)
				if err != nil {
					return nil, err
				}
				if w := pairWarning(v); w != "" {
					c.Warn(w)
				}
				ring, err := status.Ring(ctx)
				if err != nil {
					return nil, err
				}
				return healthMap(v, ring), nil
			},
		},
		{
			Name: "cluster.ring_info",
			Doc: `Show how jobs and minion data are spread over the masters: nodes, partitions, copies, the share
of each node, and what is being moved (bytes so far, in all, and seconds left, once that can be
judged) or waits to be handed over.

Example:

    salt-run cluster.ring_info`,
			Run: func(ctx context.Context, _ *Call) (any, error) {
				v, err := status.Ring(ctx)
				if err != nil {
					return nil, err
				}
				return ringMap(v), nil
			},
		},
	}
}

// membersMap has the keys of Salt 3008 first, then ours.
func membersMap(v ClusterView) value.Map {
	voters, learners := []string{}, []string{}
	peers := append([]PeerView(nil), v.Peers...)
	sort.Slice(peers, func(i, j int) bool { return peers[i].ID < peers[j].ID })
	detail := value.Map{}
	for _, p := range peers {
		if p.Voter {
			voters = append(voters, p.ID)
		} else {
			learners = append(learners, p.ID)
		}
		one := value.Map{
			{Key: "address", Value: p.Addr}, {Key: "state", Value: p.State},
			{Key: "phase", Value: p.Phase}, {Key: "version", Value: p.Version},
			{Key: "level", Value: nil}, {Key: "lag", Value: int64(p.Lag)},
			{Key: "last_contact", Value: nil},
			{Key: "clock", Value: nil}, {Key: "extensions", Value: nil},
		}
		if p.Level > 0 {
			one = one.Set("level", int64(p.Level))
		}
		if p.Extensions != "" {
			one = one.Set("extensions", p.Extensions)
		}
		if p.ClockKnown {
			one = one.Set("clock", float64(p.ClockAhead.Milliseconds())/1000)
		}
		if p.LastContact >= 0 {
			one = one.Set("last_contact", float64(p.LastContact.Milliseconds())/1000)
		}
		one = append(append(one, value.Pair{Key: "ready", Value: p.Ready}), p.More...)
		detail = append(detail, value.Pair{Key: p.ID, Value: one})
	}
	var leader any
	if v.Leader != "" {
		leader = v.Leader
	}
	return value.Map{
		{Key: "node_id", Value: v.ID}, {Key: "voters", Value: value.Texts(voters)},
		{Key: "learners", Value: value.Texts(learners)},
		{Key: "membership_version", Value: v.MembershipIndex},
		{Key: "voter_count", Value: int64(len(voters))},
		{Key: "learner_count", Value: int64(len(learners))}, {Key: "leader_id", Value: leader},
		{Key: "term", Value: int64(v.Term)},
		{Key: "unhealthy_voters", Value: value.Texts(v.Unhealthy)},
		{Key: "recently_demoted", Value: value.Texts(v.Demoted)},
		{Key: "removed", Value: value.Texts(v.Barred)}, {Key: "level", Value: levelMap(v)},
		{Key: "peers", Value: detail},
	}
}

// levelMap has the cluster's level, the releases that run, and the members that keep the level from
// rising.
func levelMap(v ClusterView) value.Map {
	byRelease, highest := map[string][]string{}, v.Supported
	for _, p := range v.Peers {
		byRelease[p.Version] = append(byRelease[p.Version], p.ID)
		highest = max(highest, p.Level)
	}
	releases := value.Map{}
	for _, r := range slices.Sorted(maps.Keys(byRelease)) {
		releases = append(releases, value.Pair{Key: r, Value: value.Texts(byRelease[r])})
	}
	heldBackBy := []string{}
	for _, p := range v.Peers {
		if highest > v.Level && p.Level < highest {
			heldBackBy = append(heldBackBy, p.ID)
		}
	}
	return value.Map{
		{Key: "cluster", Value: int64(v.Level)}, {Key: "highest", Value: int64(highest)},
		{Key: "held_back_by", Value: value.Texts(heldBackBy)},
		{Key: "releases", Value: releases}, {Key: "skew", Value: len(byRelease) > 1},
	}
}

// pairWarning says that two voters can't lose one; "" for other numbers. It is how such a cluster
// was built, and so no problem that an operator must look after.
func pairWarning(v ClusterView) string {
	voters := 0
	for _, p := range v.Peers {
		if p.Voter {
			voters++
		}
	}
	if voters != 2 {
		return ""
	}
	return "two voters: if either dies, keys and members can't be changed until it is back; add a third master"
}

// healthMap judges the cluster's state. A master whose configuration names no cluster is healthy
// alone.
func healthMap(v ClusterView, ring RingView) value.Map {
	problems := []string{}
	say := func(format string, args ...any) {
		problems = append(problems,
			fmt.Sprintf(format, args...))
	}
	if v.Apart != "" {
		say("%s is not a member of the cluster that cluster_id names: %s", v.ID, v.Apart)
	}
	voters, reachable, ready := 0, 0, 0
	for _, p := range v.Peers {
		if p.Voter {
			voters++
			if p.Reachable {
				reachable++
			}
		}
		if off := p.ClockAhead.Abs().Round(time.Second); p.ClockKnown && off > p.ClockLimit {
			way := "ahead of"
			if p.ClockAhead < 0 {
				way = "behind"
			}
			say("%s has a clock that is %v %s those of the others; set it there, by NTP for example", p.ID, off, way)
		}
		if p.Ready {
			ready++
			continue
		}
		switch {
		case !p.Reachable:
			say("%s is unreachable", p.ID)
		case p.State == "draining":
			say("%s is drained; salt-run cluster.undrain ends that", p.ID)
		default:
			if why := ring.Refusing[p.ID]; why != "" {
				say("%s is not ready (%s)", p.ID, why)
				continue
			}
			say("%s is not ready (%s)", p.ID, p.State)
		}
	}
	need := voters/2 + 1
	switch {
	case voters == 0:
	case reachable < need || v.Note != "":
		say("no quorum: %d of %d voters in contact, %d needed; keys and members can't be changed until more masters run, or, if those are gone for good, salt-run cluster.recover",
			reachable, voters, need)
	case voters > 2 && reachable == need:
		say("no voter may die: %d of %d are in contact, and %d are needed", reachable, voters, need)
	case v.Leader == "":
		say("no leader is known")
	}
	if v.ClocksDiffer {
		say("the clocks of the masters in contact differ, and none has a majority; set them, by NTP for example")
	}
	if len(v.Differing) > 0 {
		say("%s", differenceText(v))
	}
	if text := extensionsText(v.Peers); text != "" {
		say("%s", text)
	}
	for _, a := range v.Alarms {
		say("%s", a)
	}
	if ring.UnderReplicated > 0 {
		say("%d records have fewer copies than they should", ring.UnderReplicated)
	}
	if ring.HintsPending > 0 {
		say("%d records wait to be handed to a master that was away", ring.HintsPending)
	}
	for _, id := range ring.Refilling {
		say("%s is fetching its records from the others: its store was damaged, or it was away "+
			"for too long; its log says which", id)
	}
	for _, t := range ring.Transfers {
		say("%s still has to fetch %d partitions", t.To, t.Partitions)
	}
	retcode := int64(0)
	if len(problems) > 0 {
		retcode = 1
	}
	var leader any
	if v.Leader != "" {
		leader = v.Leader
	}
	return value.Map{
		{Key: "healthy", Value: len(problems) == 0}, {Key: "problems", Value: value.Texts(problems)},
		{Key: "members", Value: int64(len(v.Peers))},
		{Key: "ready", Value: int64(ready)}, {Key: "leader_id", Value: leader},
		{Key: "voters", Value: value.Map{{Key: "count", Value: int64(voters)},
			{Key: "in_contact", Value: int64(reachable)}, {Key: "needed", Value: int64(need)}}},
		{Key: "level", Value: levelMap(v)},
		{Key: "retcode", Value: retcode},
	}
}

// extensionsText names the masters in contact whose extension_modules differ; "" for none.
func extensionsText(peers []PeerView) string {
	by := map[string][]string{}
	for _, p := range peers {
		if p.Reachable && p.Extensions != "" {
			by[p.Extensions] = append(by[p.Extensions], p.ID)
		}
	}
	if len(by) < 2 {
		return ""
	}
	var groups []string
	for _, digest := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[digest])
		groups = append(groups, fmt.Sprintf("%s: %s", strings.Join(by[digest], ", "), digest))
	}
	return "the files below extension_modules differ (" + strings.Join(groups, "; ") + "): copy them with salt-run saltutil.sync_all; " +
		"clustermaster doctor --all names the folders"
}

// differenceText names the members whose replicated states differ, and which of them to replace.
func differenceText(v ClusterView) string {
	bad := strings.Join(v.Differing, ", ")
	switch {
	case v.Odd:
		return fmt.Sprintf("the replicated state of this master, %s, differs from that of %s, which are the "+
			"majority: remove %s with salt-run cluster.remove on another master, and let it join again with an "+
			"empty data directory", v.ID, bad, v.ID)
	case len(v.Peers) < 3:
		return fmt.Sprintf("the replicated states of %s and %s differ, and two masters can't decide which is "+
			"right: compare salt-key -L on both; remove the wrong one with salt-run cluster.remove, and let it "+
			"join again with an empty data directory", v.ID, bad)
	}
	return fmt.Sprintf("the replicated state of %s differs from that of %s: ask the other masters with salt-run "+
		"cluster.health; if most of them differ from the same master, remove it with salt-run cluster.remove, "+
		"and let it join again with an empty data directory", bad, v.ID)
}

func ringMap(v RingView) value.Map {
	nodes := append([]string(nil), v.Nodes...)
	sort.Strings(nodes)
	shares := value.Map{}
	for _, id := range nodes {
		shares = append(shares, value.Pair{Key: id, Value: round4(v.Shares[id])})
	}
	transfers := []any{}
	for _, t := range v.Transfers {
		one := value.Map{
			{Key: "to", Value: t.To}, {Key: "partitions", Value: int64(t.Partitions)},
			{Key: "bytes", Value: t.Fetched},
			{Key: "bytes_total", Value: nil}, {Key: "eta", Value: nil},
		}
		if t.ETA >= 0 {
			one = one.Set("bytes_total", t.Expected).Set("eta", int64(t.ETA.Seconds()+0.5))
		}
		transfers = append(transfers, one)
	}
	return value.Map{
		{Key: "is_clustered", Value: v.Clustered}, {Key: "node_count", Value: int64(len(nodes))},
		{Key: "nodes", Value: value.Texts(nodes)},
		{Key: "vnodes", Value: int64(v.VirtualNodes)}, {Key: "epoch", Value: int64(v.Epoch)},
		{Key: "replicas", Value: int64(v.Replicas)},
		{Key: "partitions", Value: int64(v.Partitions)}, {Key: "shares", Value: shares},
		{Key: "transfers", Value: transfers}, {Key: "transfer_bytes", Value: v.TransferBytes},
		{Key: "hints_pending", Value: v.HintsPending},
		{Key: "under_replicated", Value: v.UnderReplicated},
	}
}

func round4(f float64) float64 { return float64(int64(f*10000+0.5)) / 10000 }
