package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"clustermaster/salt/cli"
)

// view is the local master's view of its cluster: the answers of cluster.health, members and
// ring_info.
type view struct {
	Health  health   `json:"health"`
	Members members  `json:"members"`
	Ring    ring     `json:"ring"`
	Notes   []string `json:"notes,omitempty"` // why the answers may be out of date, and other warnings
}

type health struct {
	Healthy  bool     `json:"healthy"`
	Problems []string `json:"problems"`
	Members  int      `json:"members"`
	Ready    int      `json:"ready"`
	Voters   struct {
		Count     int `json:"count"`
		InContact int `json:"in_contact"`
		Needed    int `json:"needed"`
	} `json:"voters"`
}

type members struct {
	Node     string          `json:"node_id"`
	Leader   string          `json:"leader_id"`
	Term     uint64          `json:"term"`
	Voters   []string        `json:"voters"`
	Learners []string        `json:"learners"`
	Removed  []string        `json:"removed"`
	Peers    map[string]peer `json:"peers"`
}

type peer struct {
	Address     string   `json:"address"`
	State       string   `json:"state"`
	Version     string   `json:"version"`
	Level       int      `json:"level"`
	Lag         uint64   `json:"lag"`          // log entries
	LastContact *float64 `json:"last_contact"` // seconds
	Clock       *float64 `json:"clock"`        // seconds ahead of most masters
	Ready       bool     `json:"ready"`
	Sync        *syncing `json:"sync,omitempty"`
	Trouble     string   `json:"sync_trouble,omitempty"`
}

// syncing is a joining master's progress with the files of the roots.
type syncing struct {
	Percent float64 `json:"percent"`
	Bytes   int64   `json:"bytes"`
	Total   int64   `json:"bytes_total"`
	Rate    float64 `json:"rate"` // bytes per second
	ETA     int64   `json:"eta"`  // seconds
}

type ring struct {
	Clustered       bool               `json:"is_clustered"`
	Replicas        int                `json:"replicas"`
	Partitions      int                `json:"partitions"`
	Shares          map[string]float64 `json:"shares"`
	Transfers       []transfer         `json:"transfers"`
	HintsPending    int64              `json:"hints_pending"`
	UnderReplicated int64              `json:"under_replicated"`
}

// transfer is the data that a master still has to fetch after a change of the ring.
type transfer struct {
	To         string `json:"to"`
	Partitions int    `json:"partitions"`
	Bytes      int64  `json:"bytes"`
	Total      *int64 `json:"bytes_total"`
	ETA        *int64 `json:"eta"` // seconds
}

// look asks the master for a view. The error is cli.ErrDown if the master does not run.
func look(ctx context.Context, getenv func(string) string, dir string) (view, error) {
	var v view
	for _, q := range []struct {
		fun string
		to  any
	}{{"cluster.members", &v.Members}, {"cluster.health", &v.Health}, {"cluster.ring_info",
		&v.Ring}} {
		notes, err := cli.Query(ctx, getenv, dir, q.to, q.fun)
		if err != nil {
			return v, err
		}
		for _, n := range notes {
			if !slices.Contains(v.Notes, n) {
				v.Notes = append(v.Notes, n)
			}
		}
	}
	return v, nil
}

// names lists the ids of all masters, sorted.
func (m members) names() []string { return slices.Sorted(maps.Keys(m.Peers)) }

// role returns leader, voter or learner.
func (m members) role(id string) string {
	switch {
	case id == m.Leader:
		return "leader"
	case slices.Contains(m.Voters, id):
		return "voter"
	}
	return "learner"
}

// moving reports whether anything is being copied between masters.
func (v view) moving() bool {
	for _, p := range v.Members.Peers {
		if p.Sync != nil {
			return true
		}
	}
	return len(v.Ring.Transfers) > 0
}

// key is equal for two views that differ only in figures that change continually.
func (v view) key() string {
	peers := maps.Clone(v.Members.Peers)
	for id, p := range peers {
		p.Lag, p.LastContact, p.Clock = 0, nil, nil
		peers[id] = p
	}
	v.Members.Peers = peers
	b, _ := json.Marshal(v) // of numbers and texts
	return string(b)
}

// Exit codes of the three commands, also in docs/operations.md.
const (
	exitGood     = 0
	exitProblems = 1
	exitDown     = 2 // no answer
	exitUsage    = 64
)

// code returns the exit code for the result of a look.
func (v view) code(err error) int {
	switch {
	case err != nil:
		return exitDown
	case !v.Health.Healthy:
		return exitProblems
	}
	return exitGood
}

// remedy returns an error's line for an operator.
func remedy(err error, dir string) string {
	if errors.Is(err, cli.ErrDown) {
		return fmt.Sprintf("no master answers on this machine (configuration %s); start it with systemctl start salt-master, or name its folder with -c",
			cmp.Or(dir, "/etc/salt"))
	}
	return err.Error()
}
