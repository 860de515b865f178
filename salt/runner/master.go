package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Modules runs execution functions on this master, as templates do; found is false for an unknown
// function.
type Modules interface {
	Run(ctx context.Context, fun string, args []any, kwargs value.Map) (val any, found bool,
		err error)
	// Command is Run with the grains of this master and, withPillar, its pillar. Unless the call is
	// for a template, pillar values in the result are masked. retcode is what the function leaves
	// in Salt's __context__; 0 is success.
	Command(ctx context.Context, fun string, args []any, kwargs value.Map, withPillar,
		forTemplate bool) (val any, retcode int, found bool, err error)
}

// OnMaster is the functions that run an execution function on this master, and error.error.
func OnMaster(modules Modules) []Function {
	same := func(name, params, doc string) Function {
		return Function{Name: name, VarArgs: true, VarKwargs: true,
			Doc: doc + `

Example:

    salt-run ` + name + " " + params,
			Run: func(ctx context.Context, c *Call) (any, error) {
				v, _, err := modules.Run(ctx, name, c.Rest(), withoutPrivate(c.Kwargs()))
				return v, err
			}}
	}
	return []Function{
		same("http.query", "https://example.org/api decode=True",
			"Make a web request and show the answer; parameters are those of the function http.query in templates."),
		same("sdb.get", "sdb://profile/key", "Look up a value of an sdb profile of this master."),
		{Name: "salt.cmd", Params: []function.Param{function.Need("fun")}, VarArgs: true,
			VarKwargs: true,
			Doc: `Run an execution function on this master, with the grains of this machine. If a Python with Salt
is installed, that is any function of Salt and of the site, else one of those that templates have.

with_pillar: with the pillar of the master's id, too. Outside of templates pillar.get, item and
items mask its values; unmask=True shows them.

Example:

    salt-run salt.cmd test.arg 1 2 a=b`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				kwargs := withoutPrivate(c.Kwargs())
				withPillar, _ := kwargs.Get("with_pillar")
				v, retcode, found, err := modules.Command(ctx, c.Text("fun"), c.Rest(),
					kwargs.Without("with_pillar"), value.Truth(withPillar), c.forTemplate)
				if !found {
					return fmt.Sprintf("'%s' is not available.", c.Text("fun")), nil
				}
				code, _ := envelope(v)
				return Ended{Return: v, Success: retcode == 0, Retcode: code}, err
			}},
		{Name: "error.error", Params: []function.Param{function.Opt("name", nil),
			function.Opt("message", "")},
			Doc: `Fail with a message, for tests; without a name nothing happens.

Example:

    salt-run error.error name=Exception message='This is an error.'`,
			Run: func(_ context.Context, c *Call) (any, error) {
				if !c.Given("name") {
					return value.Map{}, nil
				}
				return nil, errors.New(c.Text("message"))
			}},
	}
}

// withoutPrivate removes the keywords that the caller's client adds.
func withoutPrivate(kwargs value.Map) value.Map {
	return slices.DeleteFunc(slices.Clone(kwargs), func(p value.Pair) bool {
		name, _ := p.Key.(string)
		return strings.HasPrefix(name, "__")
	})
}

// Matcher tells whether a target means a minion.
type Matcher interface {
	// Means reports whether a compound target certainly means the minion; it compares pillar values
	// exactly. Without stored grains and pillars no target does. incomplete is not empty if the
	// minion's could not be read.
	Means(ctx context.Context, compound any, id string) (means bool, incomplete string, err error)
}

// Matching is the family match.
func Matching(targets Matcher) []Function {
	return []Function{{
		Name: "match.compound_matches", Params: []function.Param{function.Need("expr"),
			function.Need("minion_id")},
		Doc: `Tell whether a compound target means a minion: its id, or False. Pillar values must be given
exactly.

Example:

    salt-run match.compound_matches 'I@foo:bar and G@os:Deb* and not db*' web1`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			res, id := any(false), c.Text("minion_id")
			means, incomplete, err := targets.Means(ctx, c.Arg("expr"), id)
			if incomplete != "" {
				c.Warn(incomplete + untargeted)
			}
			if err == nil && means {
				res = id
			}
			return value.Map{{Key: "res", Value: res}}, nil
		},
	}}
}
