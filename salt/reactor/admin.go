package reactor

import (
	"context"
	"fmt"

	"clustermaster/cluster/fsm"
	"clustermaster/value"
)

// Admin changes the reactors of the whole cluster.
type Admin struct {
	*Reactor
	Agreed *Agreed
}

// Reactors returns those in force in the option's form: maps from a pattern on tags to its files.
func (a Admin) Reactors() []any {
	out := []any{}
	for _, rule := range a.Rules() {
		out = append(out, value.Map{{Key: rule.Tag, Value: rule.Value}})
	}
	return out
}

// Fire fires an event on this master's bus.
func (a Admin) Fire(tag string, data value.Map) { a.deps.Bus.Fire(tag, data) }

// Leading reports whether the cluster reacts to events.
func (a Admin) Leading() bool { return !a.Agreed.cluster.State().Reactors().Off }

// AddReactor returns false if the tag already has reactions.
func (a Admin) AddReactor(ctx context.Context, tag string, files []string) (bool, error) {
	return a.change(ctx, &fsm.ChangeReactor{Action: fsm.AddReactor, Tag: tag, Files: files})
}

// DeleteReactor returns false if the tag has none.
func (a Admin) DeleteReactor(ctx context.Context, tag string) (bool, error) {
	return a.change(ctx, &fsm.ChangeReactor{Action: fsm.DeleteReactor, Tag: tag})
}

// Lead switches reactions on or off.
func (a Admin) Lead(ctx context.Context, on bool) error {
	action := fsm.ReactorsOff
	if on {
		action = fsm.ReactorsOn
	}
	_, err := a.change(ctx, &fsm.ChangeReactor{Action: action})
	return err
}

// change returns when every serving master applies it.
func (a Admin) change(ctx context.Context, c *fsm.ChangeReactor) (bool, error) {
	c.Configured, c.At = a.Configured(c.Tag), a.Agreed.cluster.Now().UTC()
	done, index, err := a.Agreed.cluster.Propose(ctx, c)
	if err != nil {
		return false, fmt.Errorf("change reactors: %w", err)
	}
	switch done.Refused {
	case "":
	case fsm.RefusedFull:
		return false, fmt.Errorf("change reactors: %d are added or deleted, which is the most; "+
			"write them into the option reactor", fsm.MaxReactors)
	default:
		return false,
			fmt.Errorf("change reactors: refused as %s: a tag has at most %d bytes and %d files of %d bytes",
				done.Refused, fsm.MaxReactorTag, fsm.MaxReactorFiles, fsm.MaxReactorPath)
	}
	a.Agreed.cluster.ConfirmEverywhere(ctx, index)
	return done.Changed, nil
}
