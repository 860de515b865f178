package master

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/store/allotment"
	"clustermaster/value"
)

// pillar answers _pillar and stores the grains in the request, which arrive in no other way. While
// the disk is almost full the minion still gets its pillar; the stored grains and pillar then stay
// as they were.
func (m *Master) pillar(ctx context.Context, c *call) (any, error) {
	// Any value but "2" requests the form of very old minions.
	sealed := c.Load.String("ver") == "2" && m.opts.PillarVersion != 1
	wrap := func(v any) any {
		if sealed {
			return private{v}
		}
		return v
	}
	raw, ok := c.Load.Get("grains")
	if !ok || c.ID == "" {
		return wrap(false), nil
	}
	grains, err := raw.Map()
	if err != nil {
		return wrap(false), nil // the reply says so
	}
	grains = grains.Set("id", c.ID)
	if m.opts.MinionDataCache {
		packed, err := value.Pack(grains)
		if err != nil {
			return wrap(""), fmt.Errorf("pack grains: %w", err)
		}
		if err := m.deps.Data.SetGrains(ctx, c.ID, packed); err != nil && m.space(c) == nil {
			return wrap(""), fmt.Errorf("%w: save grains of %q: %w", errUnacknowledged, c.ID, err)
		}
		if m.opts.MinionDataCacheEvents {
			m.deps.Bus.Fire("minion/refresh/"+c.ID,
				value.Map{{Key: "Minion data cache refresh", Value: c.ID}})
		}
	}
	request := PillarRequest{ID: c.ID, Grains: grains, Saltenv: c.environment("saltenv"),
		Pillarenv: c.environment("pillarenv")}
	if request.Saltenv == "" {
		request.Saltenv = c.Load.String("env")
	}
	request.Override = c.mapField("pillar_override")
	request.ExtraMinionData = c.mapField("extra_minion_data")
	clean, _ := c.Load.Get("clean_cache")
	request.CleanCache = isTrue(clean)
	if ext, ok := c.Load.Get("ext"); ok {
		request.Ext, _ = ext.Unpack()
	}
	made := MadePillar{Pillar: value.Map{}, Keep: value.Map{}, Env: request.Pillarenv}
	if m.deps.Pillars != nil {
		if err := m.pillars.enter(ctx); err != nil {
			return wrap(""), err
		}
		defer m.pillars.leave()
		if made, err = m.deps.Pillars.Pillar(ctx, request); err != nil {
			return wrap(""), fmt.Errorf("make pillar of %q: %w", c.ID, err)
		}
	}
	if made.Keep != nil && (m.opts.MinionDataCache || m.opts.PillarCache) {
		err := m.deps.Data.SetPillar(ctx, c.ID, made.Env, made.Keep)
		if errors.Is(err, allotment.ErrQuota) { // it is made again when needed
			m.refused.note("quota_pillarenv", c.ID, c.remote)
		} else if err != nil && m.space(c) == nil {
			return wrap(""), fmt.Errorf("%w: save pillar of %q: %w", errUnacknowledged, c.ID, err)
		}
	}
	return wrap(made.Pillar), nil
}

// environment is the text of an environment asked for; "" if none is. On a command line
// "pillarenv=2024" is a number.
func (c *call) environment(key string) string {
	raw, _ := c.Load.Get(key)
	if v, err := raw.Unpack(); err == nil && v != nil {
		return value.Str(v)
	}
	return ""
}

// mapField decodes a field that is a map; nil if it is none.
func (c *call) mapField(key string) value.Map {
	raw, ok := c.Load.Get(key)
	if !ok || !raw.IsMap() {
		return nil
	}
	m, err := raw.Map()
	if err != nil {
		return nil
	}
	return m
}
