package gitfs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/cluster/fsm"
)

// Cluster is the replicated state; *cluster.Node implements it.
type Cluster interface {
	State() *fsm.State
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error)
	ReadIndex(ctx context.Context) error
	IsLeader() bool
	Voters() []string
	Leader() (node string, ok bool)
	Now() time.Time
}

// Agreed is the part of the replicated state about what is served from git.
type Agreed struct{ Cluster Cluster }

var _ Agreement = Agreed{}

// Tables implements Agreement, as do the next ones.
func (a Agreed) Tables() map[string]Table {
	out := make(map[string]Table)
	for _, m := range a.Cluster.State().GitMirrors() {
		t := Table{
			Seq: m.Seq, At: m.At, Locked: m.Locked, Refs: make(Refs, len(m.Refs)),
			Before: make(map[string][]string),
			Pins:   make(map[string]Pin),
		}
		for _, ref := range m.Refs {
			t.Refs[ref.Name] = ref.Commit
			if len(ref.Before) > 0 {
				t.Before[ref.Name] = ref.Before
			}
		}
		for _, p := range m.Pins {
			t.Pins[p.Env] = Pin{Commit: p.Commit, By: p.By, At: p.At}
		}
		out[m.Key] = t
	}
	return out
}

func (a Agreed) Publish(ctx context.Context, key string, seq uint64, put Refs,
	drop []string) error {
	c := &fsm.SetGitRefs{Key: key, Seq: seq, Drop: drop, At: a.Cluster.Now().UTC()}
	for name, commit := range put {
		c.Put = append(c.Put, fsm.GitRef{Name: name, Commit: commit})
	}
	slices.SortFunc(c.Put, func(x, y fsm.GitRef) int { return strings.Compare(x.Name, y.Name) })
	res, _, err := a.Cluster.Propose(ctx, c)
	switch {
	case err != nil:
		return err
	case res.Refused == fsm.RefusedStale:
		return ErrStale
	case res.Refused != "":
		return fmt.Errorf("refused: %s", res.Refused)
	}
	return nil
}

func (a Agreed) change(ctx context.Context, c *fsm.ChangeGit) error {
	c.At = a.Cluster.Now().UTC()
	res, _, err := a.Cluster.Propose(ctx, c)
	if err == nil && res.Refused != "" {
		err = fmt.Errorf("refused: %s", res.Refused)
	}
	return err
}

func (a Agreed) Pin(ctx context.Context, key, env, commit, by string) error {
	c := &fsm.ChangeGit{Action: fsm.PinGit, Key: key, Env: env, Commit: commit, By: by}
	if commit == "" {
		c.Action = fsm.UnpinGit
	}
	return a.change(ctx, c)
}

func (a Agreed) Lock(ctx context.Context, key string, on bool) error {
	c := &fsm.ChangeGit{Action: fsm.UnlockGit, Key: key}
	if on {
		c.Action = fsm.LockGit
	}
	return a.change(ctx, c)
}

func (a Agreed) Leading() bool                     { return a.Cluster.IsLeader() }
func (a Agreed) Leader() (node string, ok bool)    { return a.Cluster.Leader() }
func (a Agreed) Voters() []string                  { return a.Cluster.Voters() }
func (a Agreed) Refresh(ctx context.Context) error { return a.Cluster.ReadIndex(ctx) }
