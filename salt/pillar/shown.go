package pillar

import (
	"context"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// MinionData reads the kept data of minions; *miniondata.Data implements it.
type MinionData interface {
	Grains(ctx context.Context, id string) (grains value.Map, found bool, err error)
	// FirstGrains returns the grains of the first minion, by id, that has some.
	FirstGrains(ctx context.Context) (grains value.Map, found bool, err error)
	PillarOf(ctx context.Context, id, pillarenv string) (pillar value.Map, found bool, err error)
	DropPillar(ctx context.Context, id string) error
}

// Shown makes pillars for an operator from the minions' kept grains.
type Shown struct {
	Compiler *Compiler
	Data     MinionData
}

// request takes the kept grains; for a minion without any, it has only the id.
func (p Shown) request(ctx context.Context, id string, extra value.Map, saltenv,
	pillarenv string) (Request, error) {
	grains, found, err := p.Data.Grains(ctx, id)
	if err != nil {
		return Request{}, err
	}
	if !found {
		grains = value.Map{{Key: "fqdn", Value: id}}
	}
	for _, kw := range extra {
		if name, ok := kw.Key.(string); ok {
			grains = grains.Set(name, kw.Value)
		}
	}
	return Request{ID: id, Grains: grains, Saltenv: saltenv, Pillarenv: pillarenv,
		CleanCache: true}, nil
}

func (p Shown) MakePillar(ctx context.Context, id string, extra value.Map, saltenv,
	pillarenv string) (value.Map, error) {
	r, err := p.request(ctx, id, extra, saltenv, pillarenv)
	if err != nil {
		return nil, err
	}
	made, err := p.Compiler.Pillar(ctx, r)
	return made.Pillar, err
}

// Top makes the top file for a minion; with id "" it takes the grains of the first minion that has
// some, as Salt does.
func (p Shown) Top(ctx context.Context, id, saltenv string) (value.Map, []string, error) {
	r, err := p.request(ctx, id, nil, saltenv, "")
	if err == nil && id == "" {
		var grains value.Map
		var found bool
		if grains, found, err = p.Data.FirstGrains(ctx); found {
			r.Grains = grains
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return p.Compiler.Top(ctx, r)
}

func (p Shown) Kept(ctx context.Context, id, pillarenv string) (value.Map, bool, error) {
	return p.Data.PillarOf(ctx, id, pillarenv)
}

func (p Shown) Forget(ctx context.Context, id string) error {
	return p.Data.DropPillar(ctx, id)
}

// Decrypt runs a renderer such as gpg over a loaded value, on behalf of the minion or master id.
func (c *Compiler) Decrypt(ctx context.Context, id string, v any, renderer string) (any, error) {
	text := string(yaml11.Dump(value.Map{{Key: "v", Value: v}}))
	made, err := c.RenderText(ctx, Request{ID: id}, nil, nil, "", text, "yaml|"+renderer, nil)
	if err != nil {
		return nil, err
	}
	m, _ := made.(value.Map)
	plain, _ := m.Get("v")
	return plain, nil
}
