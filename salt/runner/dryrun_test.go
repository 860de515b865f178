package runner

import (
	"context"
	"errors"
	"strings"
	"testing"

	"clustermaster/value"
)

// seen is a cluster of m1, asked and leading, m2 that is away, and m3.
type seen struct{}

func (seen) View(context.Context) (ClusterView, error) {
	return ClusterView{ID: "m1", Leader: "m1", Peers: []PeerView{
		{ID: "m1", Addr: "10.0.0.1:4520", Voter: true, Reachable: true, Ready: true},
		{ID: "m2", Addr: "10.0.0.2:4520", Voter: true},
		{ID: "m3", Addr: "10.0.0.3:4520", Voter: true, Reachable: true, Ready: true},
		{ID: "m4", Addr: "10.0.0.4:4520"},
	}}, nil
}

func (seen) Ring(context.Context) (RingView, error) { return RingView{}, errors.New("not asked") }

// untouched fails the test if an order is carried out.
type untouched struct {
	obeyed
	t *testing.T
}

func (u untouched) Remove(context.Context, string, bool) (RemovalView, error) {
	u.t.Error("removed")
	return RemovalView{}, nil
}

func (u untouched) Demote(context.Context, string) (string, int, error) {
	u.t.Error("demoted")
	return "", 0, nil
}

func (u untouched) Drain(context.Context, string, bool) (string, error) {
	u.t.Error("drained")
	return "", nil
}

func (u untouched) TransferLeader(context.Context, string) (string, error) {
	u.t.Error("transferred")
	return "", nil
}

func (u untouched) RotateSecret(context.Context) (string, error) {
	u.t.Error("secret rotated")
	return "", nil
}

func (u untouched) RotateKeys(context.Context) error {
	u.t.Error("keys rotated")
	return nil
}

func TestDryRunsChangeNothing(t *testing.T) {
	t.Parallel()
	r, _, _ := newRunner(t, DryRuns(seen{}, Orders(untouched{t: t})))
	for _, tt := range []struct {
		fun, peer, want, warned string
	}{
		{"cluster.remove", "m2",
			"'would_remove': 'm2', 'address': '10.0.0.2:4520', 'voters_left': 2, 'in_contact': 2, 'needed': 2, 'would_rotate_secret': True", "death of one"},
		{"cluster.remove", "10.0.0.3", "'would_remove': 'm3'",
			"only 1 of the 2 voters that are left are in contact"},
		{"cluster.remove", "m1", "a master can't remove itself", ""},
		{"cluster.remove", "m9", "peer m9: not in the cluster", ""},
		{"cluster.demote", "m3", "'would_demote': 'm3', 'voters_left': 2", "only 1 of the 2"},
		{"cluster.demote", "m4", "has no vote", ""},
		{"cluster.drain", "m1",
			"'would_drain': 'm1', 'leads': True, 'ready_without_it': ['m3']", ""},
		{"cluster.transfer_leader", "m3", "'leader_id': 'm1', 'would_lead': 'm3'", ""},
		{"cluster.transfer_leader", "m4", "has no vote and can't lead", ""},
		{"cluster.rotate_secret", "", "'would_rotate': ['cluster_secret']", ""},
		{"cluster.rotate_keys", "", "'would_rotate': ['aes', 'session']", ""},
	} {
		var args []any
		if tt.peer != "" {
			args = []any{tt.peer}
		}
		warned := ""
		req := Request{Fun: tt.fun, Args: args}
		req.Kwargs = req.Kwargs.Set("test", true)
		res := r.Run(t.Context(), req, func(_ string, v any) { warned += v.(string) })
		if got := value.Str(res.Return); !strings.Contains(got, tt.want) ||
			!strings.Contains(warned, tt.warned) {
			t.Errorf("%s %s: %s, warned %q; want %s, %q", tt.fun, tt.peer, got, warned, tt.want,
				tt.warned)
		}
	}
}

// TestDryRunExamples: the last line of each text is a dry run with all arguments that are needed.
func TestDryRunExamples(t *testing.T) {
	t.Parallel()
	orders := DryRuns(seen{}, Orders(untouched{t: t}))
	tried := 0
	for _, f := range orders {
		_, example, found := strings.Cut(f.Doc, "\n    salt-run --dry-run ")
		if !found {
			continue
		}
		tried++
		needed := []string{f.Name}
		for _, p := range f.Params {
			if p.Required {
				needed = append(needed, p.Name)
			}
		}
		words := strings.Fields(example)
		if words[0] != f.Name || len(words) < len(needed) {
			t.Errorf("the example of %v is %q", needed, example)
		}
	}
	if tried != 6 {
		t.Errorf("%d functions have an example", tried)
	}
}
