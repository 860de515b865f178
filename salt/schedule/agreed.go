package schedule

import (
	"context"
	"log/slog"

	"clustermaster/cluster/fsm"
	"clustermaster/value"
)

// Node is a master of the cluster; *cluster.Node implements it.
type Node interface {
	State() *fsm.State
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error)
	IsLeader() bool
}

// Agreed is the Cluster of a node.
type Agreed struct {
	Node      Node
	Reachable func(node string) bool // whether another master answers now
}

var _ Cluster = Agreed{}

// Leading implements Cluster, as do the next four.
func (a Agreed) Leading() bool { return a.Node.IsLeader() }

// Entries returns all entries in the replicated state.
func (a Agreed) Entries() []fsm.Scheduled { return a.Node.State().ScheduledEntries() }

// Scheduled is one of them.
func (a Agreed) Scheduled(name string) (fsm.Scheduled,
	bool) {
	return a.Node.State().Scheduled(name)
}

// Alive reports whether a master answers.
func (a Agreed) Alive(node string) bool { return a.Reachable(node) }

// Propose returns when the command is applied here.
func (a Agreed) Propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	done, _, err := a.Node.Propose(ctx, c)
	return done, err
}

// Entries reads the option and logs its errors; known reports whether a function exists. It returns
// the entries that can run.
func Entries(option value.Map, known func(fun string) bool, log *slog.Logger) []*Entry {
	log = log.With("component", "schedule")
	entries, problems := Read(option)
	for _, p := range problems {
		if p.Runs {
			log.Warn("scheduled job: "+p.Text, "name", p.Name)
		} else {
			log.Error("scheduled job is not run", "name", p.Name, "err", p.Text)
		}
	}
	for _, e := range entries {
		if !known(e.Function) {
			log.Error("Invalid function in scheduled job; salt-run -d lists those that are here",
				"name", e.Name, "fun", e.Function)
		}
	}
	return entries
}
