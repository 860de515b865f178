package runner

import (
	"context"
	"fmt"
	"sort"

	"clustermaster/wire"
)

// MinionData reads what minions sent of themselves, from the whole cluster. A minion without a record has nil and false.
type MinionData interface {
	Grains(ctx context.Context, id string) (wire.Map, bool, error)
	Pillar(ctx context.Context, id string) (wire.Map, bool, error)
	Mine(ctx context.Context, id string) (wire.Map, bool, error)
}

// Resolver finds the accepted minions that a target means, sorted.
type Resolver interface {
	Resolve(ctx context.Context, tgtType string, tgt any) ([]string, error)
}

// CacheFamily is the reading part of the family cache.
func CacheFamily(data MinionData, targets Resolver) []Function {
	doc := func(what string) string {
		return "Return the cached " + what + " of minions.\n\ntgt, tgt_type\n    The target.\n\nExample:\n\n    salt-run cache." + what + " 'web*'"
	}
	read := func(get func(context.Context, string) (wire.Map, bool, error)) func(context.Context, *Call) (any, error) {
		return func(ctx context.Context, c *Call) (any, error) {
			ids, err := targets.Resolve(ctx, c.Text("tgt_type"), c.Arg("tgt"))
			if err != nil {
				return nil, err
			}
			sort.Strings(ids)
			ret := wire.Map{}
			for _, id := range ids {
				m, ok, err := get(ctx, id)
				if err != nil {
					return nil, fmt.Errorf("read cache of minion %s: %w", id, err)
				}
				if ok {
					ret = append(ret, wire.Pair{Key: id, Value: m})
				}
			}
			return ret, nil
		}
	}
	all := []Param{Opt("tgt", "*"), Opt("tgt_type", "glob")}
	return []Function{
		{Name: "cache.grains", Params: []Param{Need("tgt"), Opt("tgt_type", "glob")}, VarKwargs: true, Run: read(data.Grains), Doc: doc("grains")},
		{Name: "cache.pillar", Params: all, VarKwargs: true, Run: read(data.Pillar), Doc: doc("pillar")},
		{Name: "cache.mine", Params: all, VarKwargs: true, Run: read(data.Mine), Doc: doc("mine")},
	}
}
