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

// Resolver finds the accepted minions that a target means, sorted. incomplete is not empty if some may be missing; it says what of their data could not
// be read.
type Resolver interface {
	Resolve(ctx context.Context, tgtType string, tgt any) (ids []string, incomplete string, err error)
}

// untargeted follows what could not be read of the minions' data.
const untargeted = "; minions whose grains or pillar are kept by masters that can't be reached are not targeted"

// CacheFamily is the reading part of the family cache.
func CacheFamily(data MinionData, targets Resolver) []Function {
	doc := func(what string) string {
		return "Return the cached " + what + " of minions.\n\ntgt, tgt_type\n    The target.\n\nExample:\n\n    salt-run cache." + what + " 'web*'"
	}
	read := func(get func(context.Context, string) (wire.Map, bool, error)) func(context.Context, *Call) (any, error) {
		return func(ctx context.Context, c *Call) (any, error) {
			ids, incomplete, err := targets.Resolve(ctx, c.Text("tgt_type"), c.Arg("tgt"))
			if err != nil {
				return nil, err
			}
			if incomplete != "" {
				c.Warn(incomplete + untargeted)
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
