package modules

import (
	"context"
	"fmt"
	"strings"

	"clustermaster/value"
)

// OnMaster runs functions as a master itself: without grains and pillar.
type OnMaster struct {
	Modules interface {
		Has(name string) bool
		Call(ctx context.Context, who Minion, fun string, args []any, kwargs value.Map) (any, error)
	}
	ID   string    // of the master
	Opts value.Map // its options
}

// Run calls a function; found is false for an unknown one.
func (m OnMaster) Run(ctx context.Context, fun string, args []any, kwargs value.Map) (value any,
	found bool, err error) {
	if !m.Modules.Has(fun) || strings.HasSuffix(fun, ".") {
		return nil, false, nil
	}
	as := Minion{ID: m.ID, Saltenv: "base", Opts: m.Opts.Set("id", m.ID)}
	value, err = m.Modules.Call(ctx, as, fun, args, kwargs)
	return value, true, err
}

// Do calls a function for its effect. An unknown one is an error.
func (m OnMaster) Do(ctx context.Context, fun string, args []any, kwargs value.Map) error {
	_, found, err := m.Run(ctx, fun, args, kwargs)
	if err == nil && !found {
		err = fmt.Errorf("function %s: %w", fun, ErrUnknown)
	}
	return err
}
