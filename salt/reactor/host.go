package reactor

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/salt/modules"
	"clustermaster/salt/render"
	"clustermaster/value"
)

// Functions are the functions of templates; *modules.Modules implements it.
type Functions interface {
	Call(ctx context.Context, m modules.Minion, fun string, args []any,
		kwargs value.Map) (any, error)
	Has(ctx context.Context, fun string) bool
}

// stages is implemented by Functions that have renderers besides those of package render.
type stages interface {
	HasRenderer(name string, src render.Source) bool
	RunStage(ctx context.Context, m modules.Minion, name, args string, val any,
		src render.Source, keywords value.Map) (any, error)
}

// Host serves templates that this master renders for itself.
type Host struct {
	Functions Functions
	// this master, and the environment for files whose template names none
	Minion modules.Minion
	// Open reads a file of file_roots.
	Open func(saltenv, path string) (abs string, data []byte, found bool, err error)
}

var (
	_ render.Host           = Host{}
	_ render.FunctionLister = Host{}
	_ render.Explainer      = Host{}
	_ render.StageRunner    = Host{}
)

// Call implements render.Host.
func (h Host) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	v, err := h.Functions.Call(ctx, h.Minion, fun, args, kwargs)
	if errors.Is(err, modules.ErrUnknown) {
		return nil, fmt.Errorf("function %s: %w", fun, render.ErrUnknownFunction)
	}
	return v, err
}

// HasFunction implements render.FunctionLister.
func (h Host) HasFunction(ctx context.Context, name string) bool {
	return h.Functions.Has(ctx, name)
}

// WhyMissing implements render.Explainer.
func (h Host) WhyMissing() string { return render.WhyMissing(h.Functions) }

// HasRenderer implements render.StageRunner.
func (h Host) HasRenderer(name string, src render.Source) bool {
	s, ok := h.Functions.(stages)
	return ok && s.HasRenderer(name, src)
}

// RunStage implements render.StageRunner.
func (h Host) RunStage(ctx context.Context, name, args string, val any, src render.Source,
	vars value.Map) (any, error) {
	return h.Functions.(stages).RunStage(ctx, h.Minion, name, args, val, src, vars)
}

// File implements render.Host: templates import from file_roots.
func (h Host) File(_ context.Context, saltenv, path string) ([]byte, bool, error) {
	if saltenv == "" {
		saltenv = h.Minion.Saltenv
	}
	_, data, found, err := h.Open(saltenv, path)
	return data, found, err
}
