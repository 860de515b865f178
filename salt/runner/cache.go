package runner

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"clustermaster/salt/function"
	"clustermaster/store/memory"
	"clustermaster/value"
)

// MinionData reads the data that minions sent, from the whole cluster. For a minion without a
// record it returns nil and false.
type MinionData interface {
	Grains(ctx context.Context, id string) (value.Map, bool, error)
	Pillar(ctx context.Context, id string) (value.Map, bool, error)
	Mine(ctx context.Context, id string) (value.Map, error)
}

// MinionForgetter removes the kept data of a minion.
type MinionForgetter interface {
	DropGrains(ctx context.Context, id string) error
	DropPillar(ctx context.Context, id string) error
	FlushMine(ctx context.Context, id string) error
	DeleteMine(ctx context.Context, id, fun string) error
}

// CacheClearing is the part of the family cache that removes data.
func CacheClearing(data MinionForgetter, targets Resolver) []Function {
	clear := func(name, what string, params []function.Param,
		drops ...func(ctx context.Context, c *Call, id string) error) Function {
		return Function{
			Name: "cache." + name, Params: append([]function.Param{function.Opt("tgt", nil),
				function.Opt("tgt_type", "glob")}, params...),
			Doc: "Remove the cached " + what + ` of minions.

Example:

    salt-run cache.` + name + " 'web*'",
			Run: func(ctx context.Context, c *Call) (any, error) {
				if !c.Given("tgt") {
					return false, nil
				}
				return true, eachTarget(ctx, c, targets, c.Arg("tgt"), c.Text("tgt_type"),
					func(id string) error {
						for _, drop := range drops {
							if err := drop(ctx, c, id); err != nil {
								return fmt.Errorf("clear cache of minion %s: %w", id, err)
							}
						}
						return nil
					})
			},
		}
	}
	grains := func(ctx context.Context, _ *Call,
		id string) error {
		return data.DropGrains(ctx, id)
	}
	pillar := func(ctx context.Context, _ *Call,
		id string) error {
		return data.DropPillar(ctx, id)
	}
	mine := func(ctx context.Context, _ *Call, id string) error { return data.FlushMine(ctx, id) }
	one := func(ctx context.Context, c *Call, id string) error {
		return data.DeleteMine(ctx, id, c.Text("clear_mine_func_flag"))
	}
	return []Function{
		clear("clear_grains", "grains", nil, grains), clear("clear_pillar", "pillar", nil, pillar),
		clear("clear_mine", "mine", nil, mine),
		clear("clear_mine_func", "value of one mine function",
			[]function.Param{function.Need("clear_mine_func_flag")}, one),
		clear("clear_all", "grains, pillar and mine", nil, grains, pillar, mine),
	}
}

// Resolver finds the accepted minions that a target matches, sorted. incomplete says how much of
// their data could not be read, so that some may be missing; else it is empty.
type Resolver interface {
	Resolve(ctx context.Context, tgtType string, tgt any) (ids []string, incomplete string,
		err error)
}

// untargeted ends the note on minion data that could not be read.
const untargeted = "; minions whose grains or pillar are kept by masters that can't be reached are not targeted"

// CacheFamily is the reading part of the family cache.
func CacheFamily(data MinionData, targets Resolver) []Function {
	doc := func(what string) string {
		return "Return the cached " + what +
			" of minions.\n\ntgt, tgt_type\n    The target.\n\nExample:\n\n    salt-run cache." +
			what + " 'web*'"
	}
	type reading = func(context.Context, string) (value.Map, bool, error)
	targeted := func(ctx context.Context, c *Call, tgtType string, tgt any, get reading) (value.Map,
		error) {
		ids, incomplete, err := targets.Resolve(ctx, tgtType, tgt)
		if err != nil {
			return nil, err
		}
		if incomplete != "" {
			c.Warn(incomplete + untargeted)
		}
		sort.Strings(ids)
		ret := value.Map{}
		var held memory.Answer
		var packed []byte
		for _, id := range ids {
			m, _, err := get(ctx, id)
			if err == nil {
				packed, err = value.AppendPack(packed[:0], m)
			}
			if err != nil {
				return nil, fmt.Errorf("read cache of minion %s: %w", id, err)
			}
			if err := held.Hold(int64(len(packed))); err != nil {
				return nil, fmt.Errorf("the data of these minions is %w", err)
			}
			ret = append(ret, value.Pair{Key: id, Value: append(value.Map{}, m...)})
		}
		return ret, nil
	}
	read := func(get reading) func(context.Context, *Call) (any, error) {
		return func(ctx context.Context, c *Call) (any, error) {
			return targeted(ctx, c, c.Text("tgt_type"), c.Arg("tgt"), get)
		}
	}
	pillar := func(ctx context.Context, c *Call) (any, error) {
		if value.Truth(c.Arg("tgt")) {
			return targeted(ctx, c, c.Text("tgt_type"), c.Arg("tgt"), data.Pillar)
		}
		// As in Salt, without a target only the minions with data are listed.
		ret, err := targeted(ctx, c, "glob", "*", data.Pillar)
		return slices.DeleteFunc(ret, func(p value.Pair) bool { return !value.Truth(p.Value) }), err
	}
	all := []function.Param{function.Opt("tgt", "*"), function.Opt("tgt_type", "glob")}
	return []Function{
		{Name: "cache.grains", Params: []function.Param{function.Need("tgt"),
			function.Opt("tgt_type", "glob")}, VarKwargs: true, Run: read(data.Grains),
			Doc: doc("grains")},
		{Name: "cache.pillar", Params: []function.Param{function.Opt("tgt", nil),
			function.Opt("tgt_type", "glob")}, VarKwargs: true, Run: pillar, Doc: doc("pillar") + `

Without a target the minions without a cached pillar are left out.`},
		{Name: "cache.mine", Params: all, VarKwargs: true, Doc: doc("mine"), Run: read(
			func(ctx context.Context, id string) (value.Map, bool, error) {
				m, err := data.Mine(ctx, id)
				return m, m != nil, err
			})},
	}
}
