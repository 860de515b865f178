package runner

import (
	"context"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// MineReader reads mines with an operator's rights: all of them.
type MineReader func(ctx context.Context, tgt, fun any, tgtType string) (value.Map, error)

// Mine is the family mine.
func Mine(mines MineReader, asker Asker) []Function {
	return []Function{
		{Name: "mine.get", Params: []function.Param{function.Need("tgt"), function.Need("fun"),
			function.Opt("tgt_type", "glob")},
			Doc: `Show mine values: one function gives minion to value, several (with commas) give function to
minion to value.

Example:

    salt-run mine.get '*' network.ip_addrs
    salt-run mine.get 'os:Debian' network.ip_addrs tgt_type=grain`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return mines(ctx, c.Arg("tgt"), c.Arg("fun"), c.Text("tgt_type"))
			}},
		{Name: "mine.update", Params: []function.Param{function.Need("tgt"),
			function.Opt("tgt_type", "glob"), function.Opt("clear", false),
			function.Opt("mine_functions", nil)},
			Doc: `Make minions send their mine now.

Example:

    salt-run mine.update '*'`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				got, err := executed(ctx, c, asker, Ask{Fun: "mine.update", Kwargs: value.Map{
					{Key: "clear", Value: c.Arg("clear")},
					{Key: "mine_functions", Value: c.Arg("mine_functions")},
				}})
				return got.all(), err
			}},
	}
}
