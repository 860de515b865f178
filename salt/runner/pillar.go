package runner

import (
	"context"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// PillarMaker makes pillars for the operator.
type PillarMaker interface {
	// MakePillar compiles a minion's pillar anew. With grains nil it uses the kept ones.
	MakePillar(ctx context.Context, id string, extra value.Map, saltenv,
		pillarenv string) (value.Map, error)
	// Top returns the merged pillar top file, or its errors.
	Top(ctx context.Context, id, saltenv string) (top value.Map, errors []string, err error)
	// Kept returns the stored pillar of a minion for a pillarenv.
	Kept(ctx context.Context, id, pillarenv string) (value.Map, bool, error)
	// Forget removes the stored pillars of a minion.
	Forget(ctx context.Context, id string) error
}

// Pillar is the family pillar.
func Pillar(maker PillarMaker, targets Resolver) []Function {
	return []Function{
		{Name: "pillar.show_pillar", Params: []function.Param{function.Opt("minion", "*")},
			VarKwargs: true,
			Doc: `Compile the pillar of a minion and show it. Keywords are grains to use; saltenv and pillarenv
choose environments.

Example:

    salt-run pillar.show_pillar web1
    salt-run pillar.show_pillar web1 pillarenv=dev os=Debian`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				saltenv, pillarenv := "base", ""
				extra := value.Map{}
				for _, kw := range c.Kwargs() {
					switch kw.Key {
					case "saltenv":
						saltenv, _ = kw.Value.(string)
					case "pillarenv":
						pillarenv, _ = kw.Value.(string)
					default:
						extra = append(extra, kw)
					}
				}
				return maker.MakePillar(ctx, c.Text("minion"), extra, saltenv, pillarenv)
			}},
		{Name: "pillar.show_top", Params: []function.Param{function.Opt("minion", nil),
			function.Opt("saltenv", "base")},
			Doc: `Show the merged top file of the pillar, or the errors of it.

Example:

    salt-run pillar.show_top`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				top, errors, err := maker.Top(ctx, c.Text("minion"), c.Text("saltenv"))
				if err != nil || len(errors) == 0 {
					return top, err
				}
				list := make([]any, len(errors))
				for i, e := range errors {
					list[i] = e
				}
				c.Progress(value.Map{{Key: "data", Value: list},
					{Key: "outputter", Value: "nested"}})
				return list, nil
			}},
		{Name: "pillar.show_pillar_cache", Params: []function.Param{function.Opt("minion", "*"),
			function.Opt("pillarenv", nil)}, VarKwargs: true,
			Doc: `Show the stored pillars of minions.

Example:

    salt-run pillar.show_pillar_cache 'web*'`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				kept := func(ctx context.Context, id string) (value.Map, bool, error) {
					return maker.Kept(ctx, id, c.Text("pillarenv"))
				}
				return cached(kept).having(ctx, c, targets, c.Arg("minion"))
			}},
		{Name: "pillar.clear_pillar_cache", Params: []function.Param{function.Opt("minion", "*"),
			function.Opt("pillarenv", nil)}, VarKwargs: true,
			Doc: `Drop the stored pillars of minions; the next request compiles them again.

Example:

    salt-run pillar.clear_pillar_cache 'web*'`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return true, eachTarget(ctx, c, targets, c.Arg("minion"), "glob",
					func(id string) error { return maker.Forget(ctx, id) })
			}},
	}
}

// eachTarget calls fn with each minion of a target.
func eachTarget(ctx context.Context, c *Call, targets Resolver, tgt any, tgtType string,
	fn func(id string) error) error {
	ids, incomplete, err := targets.Resolve(ctx, tgtType, tgt)
	if err != nil {
		return err
	}
	if incomplete != "" {
		c.Warn(incomplete + untargeted)
	}
	for _, id := range ids {
		if err := fn(id); err != nil {
			return err
		}
	}
	return nil
}
