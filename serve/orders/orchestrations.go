package orders

import (
	"context"

	"clustermaster/salt/orchestrate"
	"clustermaster/salt/runner"
	"clustermaster/value"
)

// Orchestrations runs states for the runner family state.
type Orchestrations struct {
	*orchestrate.Orchestrator
	Pauses orchestrate.KeptPauses
}

var _ runner.Orchestrator = Orchestrations{}

// SLS implements runner.Orchestrator.
func (s Orchestrations) SLS(ctx context.Context, o runner.Orchestration) (any, bool, error) {
	v, err := s.Orchestrator.SLS(ctx, orchestrate.Request(o))
	ret, _ := v.(value.Map)
	return v, orchestrate.Succeeded(ret), err
}

// Show implements runner.Orchestrator.
func (s Orchestrations) Show(ctx context.Context, o runner.Orchestration) (any, error) {
	return s.Orchestrator.Show(ctx, orchestrate.Request(o))
}

// High implements runner.Orchestrator.
func (s Orchestrations) High(ctx context.Context, data value.Map, o runner.Orchestration) (any,
	error) {
	return s.Orchestrator.High(ctx, data, orchestrate.Request(o))
}

// Single implements runner.Orchestrator.
func (s Orchestrations) Single(ctx context.Context, fun, name string, kwargs value.Map,
	o runner.Orchestration) (any, error) {
	return s.Orchestrator.Single(ctx, fun, name, kwargs, orchestrate.Request(o))
}

// Pause implements runner.Orchestrator.
func (s Orchestrations) Pause(ctx context.Context, jid string,
	change func(value.Map) value.Map) error {
	return s.Pauses.Change(ctx, jid, change)
}
