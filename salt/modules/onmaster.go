package modules

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"clustermaster/value"
)

// OnMaster runs functions as a master itself: Run without grains and pillar.
type OnMaster struct {
	Modules interface {
		Has(ctx context.Context, name string) bool
		Call(ctx context.Context, who Minion, fun string, args []any, kwargs value.Map) (any, error)
	}
	ID   string    // of the master
	Opts value.Map // its options
	// Grains and Pillar make those of the master, for Command.
	Grains func(ctx context.Context) value.Map
	Pillar func(ctx context.Context, id string, grains value.Map, saltenv, pillarenv string,
		over value.Map) (value.Map, error)
}

// Run calls a function; found is false for an unknown one.
func (m OnMaster) Run(ctx context.Context, fun string, args []any, kwargs value.Map) (value any,
	found bool, err error) {
	if !m.Modules.Has(ctx, fun) || strings.HasSuffix(fun, ".") {
		return nil, false, nil
	}
	value, err = m.Modules.Call(ctx, m.minion(), fun, args, kwargs)
	return value, true, err
}

func (m OnMaster) minion() Minion {
	return Minion{ID: m.ID, Saltenv: "base", Opts: m.Opts.Set("id", m.ID)}
}

// retcodeKey is the key of a context's pointer to the retcode of a call.
type retcodeKey struct{}

// Retcode is where the call of ctx leaves its retcode, as in Salt's __context__["retcode"]; nil if
// no caller wants it.
func Retcode(ctx context.Context) *int {
	p, _ := ctx.Value(retcodeKey{}).(*int)
	return p
}

// leave leaves the retcode of the call of ctx.
func leave(ctx context.Context, retcode int) {
	if p := Retcode(ctx); p != nil {
		*p = retcode
	}
}

// apart is ctx for calls that have a __context__ of their own.
func apart(ctx context.Context) context.Context {
	return context.WithValue(ctx, retcodeKey{}, nil)
}

// Command is Run with the grains of the master and, withPillar, its pillar. Unless the call is for
// a template, pillar values in the result are masked as Salt masks them.
func (m OnMaster) Command(ctx context.Context, fun string, args []any, kwargs value.Map,
	withPillar, forTemplate bool) (value any, retcode int, found bool, err error) {
	if !strings.Contains(fun, ".") || strings.HasSuffix(fun, ".") {
		return nil, 0, false, nil
	}
	as := m.minion()
	as.Grains = m.Grains(ctx)
	if withPillar {
		as.Pillar, err = m.Pillar(ctx, m.ID, as.Grains, m.Opts.String("saltenv"),
			m.Opts.String("pillarenv"), nil)
		if err != nil {
			return nil, 0, true, err
		}
	}
	ctx = context.WithValue(ctx, retcodeKey{}, &retcode)
	value, err = m.Modules.Call(ctx, as, fun, args, kwargs)
	if errors.Is(err, ErrUnknown) {
		return nil, 0, false, nil
	}
	if !forTemplate {
		value = outsideTemplates(m.Opts, fun, args, kwargs, value)
	}
	return value, retcode, true, err
}

// Do calls a function for its effect. An unknown one is an error.
func (m OnMaster) Do(ctx context.Context, fun string, args []any, kwargs value.Map) error {
	_, found, err := m.Run(ctx, fun, args, kwargs)
	if err == nil && !found {
		err = fmt.Errorf("function %s: %w", fun, ErrUnknown)
	}
	return err
}
