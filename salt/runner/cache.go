package runner

import (
	"context"
	"fmt"
	"slices"

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

// mineFunc is the parameter that names the mine function to clear.
const mineFunc = "clear_mine_func_flag"

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
				if !c.Given("tgt") || len(params) > 0 && !c.Given(mineFunc) {
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
		return data.DeleteMine(ctx, id, c.Text(mineFunc))
	}
	return []Function{
		clear("clear_grains", "grains", nil, grains), clear("clear_pillar", "pillar", nil, pillar),
		clear("clear_mine", "mine", nil, mine),
		clear("clear_mine_func", "value of one mine function",
			[]function.Param{function.Opt(mineFunc, nil)}, one),
		clear("clear_all", "grains, pillar and mine", nil, grains, pillar, mine),
	}
}

// Resolver finds the accepted minions that a target matches, in the order of a list, else sorted.
// incomplete says how much of their data could not be read, so that some may be missing; else it is
// empty.
type Resolver interface {
	Resolve(ctx context.Context, tgtType string, tgt any) (ids []string, incomplete string,
		err error)
}

// untargeted ends the note on minion data that could not be read.
const untargeted = "; minions whose grains or pillar are kept by masters that can't be reached are not targeted"

// cached reads one kind of a minion's data.
type cached func(ctx context.Context, id string) (value.Map, bool, error)

// of reads the data of a target's minions, in Resolve's order, as far as memory allows.
func (get cached) of(ctx context.Context, c *Call, targets Resolver, tgt any,
	tgtType string) (value.Map, error) {
	ret := value.Map{}
	var held memory.Answer
	var packed []byte
	err := eachTarget(ctx, c, targets, tgt, tgtType, func(id string) error {
		m, _, err := get(ctx, id)
		if err == nil {
			packed, err = value.AppendPack(packed[:0], m)
		}
		if err != nil {
			return fmt.Errorf("read cache of minion %s: %w", id, err)
		}
		if err := held.Keep(packed); err != nil {
			return fmt.Errorf("the data of these minions is %w", err)
		}
		ret = append(ret, value.Pair{Key: id, Value: append(value.Map{}, m...)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ret, nil
}

// having is of for a glob, without the minions that have no data.
func (get cached) having(ctx context.Context, c *Call, targets Resolver, glob any) (value.Map,
	error) {
	ret, err := get.of(ctx, c, targets, glob, "glob")
	return slices.DeleteFunc(ret, func(p value.Pair) bool { return !value.Truth(p.Value) }), err
}

// CacheFamily is the reading part of the family cache.
func CacheFamily(data MinionData, targets Resolver) []Function {
	doc := func(what string) string {
		return "Return the cached " + what +
			" of minions.\n\ntgt, tgt_type\n    The target.\n\nExample:\n\n    salt-run cache." +
			what + " 'web*'"
	}
	read := func(get cached) func(context.Context, *Call) (any, error) {
		return func(ctx context.Context, c *Call) (any, error) {
			return get.of(ctx, c, targets, c.Arg("tgt"), c.Text("tgt_type"))
		}
	}
	pillar := func(ctx context.Context, c *Call) (any, error) {
		if value.Truth(c.Arg("tgt")) {
			return read(data.Pillar)(ctx, c)
		}
		return cached(data.Pillar).having(ctx, c, targets, "*") // as in Salt
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
