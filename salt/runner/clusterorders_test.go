package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// obeyed answers orders about the peer m3 and refuses those about others.
type obeyed struct{ removed RemovalView }

func stranger(peer string) error {
	if peer == "m3" || peer == "" {
		return nil
	}
	return errors.New("peer " + peer + ": not in the cluster; see salt-run cluster.members")
}

func (o obeyed) Remove(_ context.Context, peer string, keep bool) (RemovalView, error) {
	r := o.removed
	if keep {
		r.Secret = ""
	}
	return r, stranger(peer)
}
func (obeyed) Allow(_ context.Context, id string) (bool, error) { return id == "m3", nil }
func (obeyed) Drain(_ context.Context, peer string, _ bool) (string, error) {
	return "m3", stranger(peer)
}
func (obeyed) Promote(_ context.Context, peer string) (string, bool, error) {
	return "m3", false, stranger(peer)
}
func (obeyed) Demote(_ context.Context, peer string) (string, int, error) {
	return "m3", 2, stranger(peer)
}
func (obeyed) TransferLeader(_ context.Context, peer string) (string, error) {
	return "m3", stranger(peer)
}
func (obeyed) RotateSecret(context.Context) (string, error) { return "the-new-secret", nil }
func (obeyed) RotateKeys(context.Context) error             { return nil }

func TestClusterOrders(t *testing.T) {
	t.Parallel()
	r, b, _ := newRunner(t,
		Orders(obeyed{RemovalView{ID: "m3", Secret: "the-new-secret", Unconfirmed: []string{"m2"},
			Warnings: []string{"left to do"}}}))
	for _, tt := range []struct {
		fun    string
		args   []any
		kwargs value.Map
		want   string // part of the return
		warned string
		code   int
	}{
		{"cluster.remove", []any{"m3"}, nil, "'removed': 'm3', 'cluster_secret': 'the-new-secret'",
			"left to do\nnot confirmed in time by m2", 0},
		{"cluster.remove", []any{"m3"}, value.Map{{Key: "keep_secret", Value: true}},
			"{'removed': 'm3', 'note': 'It knew the cluster", "left to do", 0},
		{"cluster.remove", []any{"m9"}, nil,
			"Exception occurred in runner cluster.remove: peer m9: not in the cluster; see salt-run cluster.members", "", 1},
		{"cluster.remove", nil, nil,
			"Passed invalid arguments: remove() missing 1 required positional argument: 'peer'",
			"", 0},
		{"cluster.allow", []any{"m3"}, nil, "{'allowed': 'm3', 'changed': True}", "", 0},
		{"cluster.allow", []any{"m2"}, nil, "{'allowed': 'm2', 'changed': False}",
			"was not kept out", 0},
		{"cluster.drain", nil, nil, "{'peer': 'm3', 'draining': True}", "", 0},
		{"cluster.undrain", []any{"m3"}, nil, "{'peer': 'm3', 'draining': False}", "", 0},
		{"cluster.promote", []any{"m3"}, nil, "{'promoted': 'm3', 'voter': False}",
			"has not caught up yet", 0},
		{"cluster.demote", []any{"m3"}, nil, "{'demoted': 'm3', 'voter_count': 2}",
			"2 voters are left", 0},
		{"cluster.transfer_leader", nil, nil, "{'leader_id': 'm3'}", "", 0},
		{"cluster.rotate_secret", nil, nil, "{'cluster_secret': 'the-new-secret'", "", 0},
		{"cluster.rotate_keys", nil, nil, "{'rotated': ['aes', 'session']}", "", 0},
	} {
		warned := ""
		res := r.Run(t.Context(), Request{Fun: tt.fun, Args: tt.args, Kwargs: tt.kwargs},
			func(_ string, v any) { warned += v.(string) })
		if got := value.Str(res.Return); !strings.Contains(got, tt.want) ||
			res.Retcode != tt.code || !strings.Contains(warned, tt.warned) {
			t.Errorf("%s %v: %s, code %d, warned %q; want %s, %d, %q", tt.fun, tt.args, got,
				res.Retcode, warned, tt.want, tt.code, tt.warned)
		}
	}
	for _, e := range b.fired {
		if strings.Contains(value.Repr(e.Data), "the-new-secret") {
			t.Errorf("event %s tells the secret: %s", e.Tag, value.Repr(e.Data))
		}
	}
}

// Secrets given to a function, right, in the wrong place or under a misspelt name, reach the
// function alone.
func TestSecretParametersStayOutOfEvents(t *testing.T) {
	t.Parallel()
	got := ""
	r, b, _ := newRunner(t,
		[]Function{{Name: "x.y", Params: []function.Param{function.Need("file"),
			function.Secret("passphrase")}, Run: func(_ context.Context, c *Call) (any, error) {
			got = c.Text("passphrase")
			return true, nil
		}}})
	for _, req := range []Request{
		{Fun: "x.y", Args: []any{"f"}, Kwargs: value.Map{{Key: "passphrase", Value: "hush"}}},
		{Fun: "x.y", Args: []any{"f", "hush"}},
		{Fun: "x.y", Args: []any{"f", "a", "hush"}},
		{Fun: "x.y", Args: []any{"f"}, Kwargs: value.Map{{Key: "pasphrase", Value: "hush"}}},
	} {
		got = ""
		res := r.Run(t.Context(), req, nil)
		if res.Retcode == 0 && res.Return == true && got != "hush" {
			t.Errorf("%v: the function got %q", req, got)
		}
	}
	if len(b.fired) == 0 {
		t.Fatal("no events")
	}
	for _, e := range b.fired {
		if strings.Contains(value.Repr(e.Data), "hush") {
			t.Errorf("event %s: %s", e.Tag, value.Repr(e.Data))
		}
	}
}

func TestSaltsRemainingClusterFunctions(t *testing.T) {
	t.Parallel()
	r, _, _ := newRunner(t, SaltCluster("m1"))
	for _, tt := range []struct {
		fun  string
		args []any
		want string
		code int
	}{
		{"cluster.rings", nil,
			"{'node_id': 'm1', 'rings': {}, 'active_rings': [], 'registry_version': -1, 'note': ",
			0},
		{"cluster.routes", nil,
			"{'node_id': 'm1', 'routes': {}, 'routing_version': -1, 'drop_stats': {}, 'note': ", 0},
		{"cluster.ring_create", []any{"jobs", "m1,m2"},
			"Exception occurred in runner cluster.ring_create: nothing done: ", 1},
		{"cluster.ring_destroy", []any{"jobs"}, "see salt-run cluster.ring_info", 1},
		{"cluster.ring_set", []any{"jobs", "voters", int64(2)},
			"see salt-run cluster.ring_info", 1},
		{"cluster.route_set", []any{"jobs", "jobs"}, "see salt-run cluster.ring_info", 1},
		{"cluster.route_clear", []any{"jobs"}, "see salt-run cluster.ring_info", 1},
		{"cluster.shed_unowned", []any{"jobs"},
			"'ring': 'jobs', 'dropped': 0, 'kept': 0, 'subbanks_dropped': 0, 'dry_run': False}", 0},
		{"cluster.shed_unowned_all", []any{"jobs"}, "{'fan_out': {'status': 'skipped'", 0},
		{"cluster.shed_status", nil, "{'status': 'missing', 'path': None", 0},
		{"cluster.collect_from_peers", nil, "{'status': 'skipped', 'reason': ", 0},
		{"cluster.migrate_jobs_to_cache", []any{true},
			"'scanned': 0, 'migrated': 0, 'skipped': 0, 'returns_migrated': 0, 'dry_run': True, 'jobs_root': None}", 0},
	} {
		res := r.Run(t.Context(), Request{Fun: tt.fun, Args: tt.args}, nil)
		if got := value.Str(res.Return); !strings.Contains(got, tt.want) || res.Retcode != tt.code {
			t.Errorf("%s: %s, code %d; want %s, %d", tt.fun, got, res.Retcode, tt.want, tt.code)
		}
	}
}

// healthOf answers with one view.
type healthOf struct{ v ClusterView }

func (h healthOf) View(context.Context) (ClusterView, error) { return h.v, nil }
func (healthOf) Ring(context.Context) (RingView, error)      { return RingView{}, nil }

// Two voters can't lose one. The cluster is healthy all the same, and a warning says it.
func TestClusterHealthOfTwo(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 0, 2: 1, 3: 0} {
		v := ClusterView{ID: "m1", Leader: "m1"}
		for i := range n {
			v.Peers = append(v.Peers, PeerView{ID: fmt.Sprint("m", i+1), State: "voter", Voter: true,
				Reachable: true, Ready: true})
		}
		r, _, _ := newRunner(t, Cluster(healthOf{v}))
		var warnings []string
		res := r.Run(t.Context(), Request{Fun: "cluster.health"}, func(kind string, v any) {
			if kind == "warning" {
				warnings = append(warnings, value.Str(v))
			}
		})
		if res.Retcode != 0 || len(warnings) != want || want > 0 && !strings.Contains(warnings[0], "two voters: if either dies") {
			t.Errorf("%d voters: code %d, warnings %q", n, res.Retcode, warnings)
		}
	}
}

func TestClusterHealth(t *testing.T) {
	t.Parallel()
	well := ClusterView{ID: "m1", Leader: "m1", Level: 2, Supported: 2, Peers: []PeerView{
		{ID: "m1", State: "voter", Voter: true, Reachable: true, Ready: true},
		{ID: "m2", State: "voter", Voter: true, Reachable: true, Ready: true},
		{ID: "m3", State: "voter", Voter: true, Reachable: true, Ready: true},
	}}
	one := func(p PeerView) ClusterView {
		v := well
		v.Peers = append([]PeerView{p}, well.Peers[1:]...)
		return v
	}
	differs := func(odd bool, alarms []string, ids ...string) ClusterView {
		v := well
		v.Differing, v.Odd, v.Alarms = ids, odd, alarms
		return v
	}
	extensions := func(digests ...string) ClusterView {
		v := well
		v.Peers = slices.Clone(well.Peers)
		for i, digest := range digests {
			v.Peers[i].Extensions = digest
		}
		return v
	}
	away := extensions("abc", "none", "abc")
	away.Peers[1].Reachable = false
	for _, tt := range []struct {
		name string
		v    ClusterView
		ring RingView
		want string
		code int64
	}{
		{"well", well, RingView{},
			"{'healthy': True, 'problems': [], 'members': 3, 'ready': 3, 'leader_id': 'm1', 'voters': {'count': 3, 'in_contact': 3, 'needed': 2}, " +
				"'level': {'cluster': 2, 'highest': 2, 'held_back_by': [], 'releases': {'': ['m1', 'm2', 'm3']}, 'skew': False}, 'retcode': 0}", 0},
		{"alone", ClusterView{ID: "m1"}, RingView{}, "'healthy': True", 0},
		{"not founded yet", ClusterView{ID: "m1", Note: "alone", Apart: "founding waits for m2"}, RingView{},
			"{'healthy': False, 'problems': ['m1 is not a member of the cluster that cluster_id names: founding waits for m2']", 1},
		{"one gone", one(PeerView{ID: "m1", State: "unreachable", Voter: true}), RingView{},
			"['m1 is unreachable', 'no voter may die: 2 of 3 are in contact, and 2 are needed']",
			1},
		{"drained", one(PeerView{ID: "m1", State: "draining", Voter: true, Reachable: true}),
			RingView{}, "['m1 is drained; salt-run cluster.undrain ends that']", 1},
		{"no quorum", ClusterView{Note: "alone",
			Peers: []PeerView{{ID: "m1", Voter: true, Reachable: true}, {ID: "m2", Voter: true}}},
			RingView{},
			"no quorum: 1 of 2 voters in contact, 2 needed; keys and members can't be changed until", 1},
		{"another's state differs", differs(false, nil, "m2"), RingView{},
			"['the replicated state of m2 differs from that of m1: ask the other masters", 1},
		{"own state differs", differs(true, nil, "m2", "m3"), RingView{},
			"['the replicated state of this master, m1, differs from that of m2, m3, which are the majority: " +
				"remove m1 with", 1},
		{"alarms", differs(false, []string{"m2: no backup"}), RingView{}, "['m2: no backup']", 1},
		{"extensions differ", extensions("none", "abc", "none"), RingView{},
			"['the files below extension_modules differ (m2: abc; m1, m3: none): copy them with", 1},
		{"an older release tells none", extensions("none", "", "none"), RingView{},
			"'healthy': True", 0},
		{"of one away nothing is known", away, RingView{},
			"'problems': ['no voter may die: 2 of 3 are in contact, and 2 are needed']", 1},
		{"copies", well, RingView{UnderReplicated: 3, HintsPending: 2,
			Transfers: []TransferView{{To: "m3", Partitions: 9}}},
			"['3 records have fewer copies than they should', '2 records wait to be handed to a master that was away', 'm3 still has to fetch 9 partitions']", 1},
	} {
		got := healthMap(tt.v, tt.ring)
		rc, _ := got.Get("retcode")
		if !strings.Contains(value.Repr(got), tt.want) || rc != tt.code {
			t.Errorf("%s: %s, want %s, retcode %d", tt.name, value.Repr(got), tt.want, tt.code)
		}
	}
}
