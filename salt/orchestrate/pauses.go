package orchestrate

import (
	"context"

	"clustermaster/value"
)

// Cache keeps values for all masters; *cache.Cache implements it.
type Cache interface {
	Fetch(ctx context.Context, bank, key string) (value any, found bool, err error)
	Store(ctx context.Context, bank, key string, value any) error
	Flush(ctx context.Context, bank, key string) (had bool, err error)
}

// KeptPauses keeps the requests to pause orchestrations as keys of the cache, so that every master
// sees them.
type KeptPauses struct{ Cache Cache }

const pauseBank = "state_pause"

// Pause implements Pauses.
func (p KeptPauses) Pause(ctx context.Context, jid string) (value.Map, error) {
	v, _, err := p.Cache.Fetch(ctx, pauseBank, jid)
	m, _ := v.(value.Map)
	return m, err
}

// Change replaces the requests to an orchestration by the result of change; an empty result removes
// them.
func (p KeptPauses) Change(ctx context.Context, jid string,
	change func(value.Map) value.Map) error {
	asked, err := p.Pause(ctx, jid)
	if err != nil {
		return err
	}
	if asked = change(asked); len(asked) > 0 {
		return p.Cache.Store(ctx, pauseBank, jid, asked)
	}
	_, err = p.Cache.Flush(ctx, pauseBank, jid)
	return err
}

// Forget implements Pauses.
func (p KeptPauses) Forget(ctx context.Context, jid string) error {
	asked, err := p.Pause(ctx, jid)
	if err != nil || asked == nil {
		return err
	}
	_, err = p.Cache.Flush(ctx, pauseBank, jid)
	return err
}
