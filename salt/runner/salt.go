package runner

import (
	"context"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Salt is the family salt: execution functions on minions.
func Salt(minions Asker) []Function {
	return []Function{{
		Name: "salt.execute", VarKwargs: true,
		Params: []function.Param{function.Need("tgt"), function.Need("fun"),
			function.Opt("arg", nil), function.Opt("timeout", nil),
			function.Opt("tgt_type", "glob"), function.Opt("ret", ""), function.Opt("jid", ""),
			function.Opt("kwarg", nil)},
		Doc: `Run an execution function on minions and return what they returned.

Example:

    salt-run salt.execute '*' test.arg arg='[1, 2]' kwarg='{a: 1}'`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			timeout, err := c.Seconds("timeout", 0)
			if err != nil {
				return nil, err
			}
			args, ok := value.Plain(c.Arg("arg")).([]any)
			if !ok && c.Given("arg") {
				args = []any{c.Arg("arg")}
			}
			kwargs, _ := value.Plain(c.Arg("kwarg")).(value.Map)
			answers, err := minions.Ask(ctx, Ask{Tgt: c.Arg("tgt"), TgtType: c.Text("tgt_type"),
				Fun: c.Text("fun"), Args: args, Kwargs: kwargs,
				Ret: c.Text("ret"), JID: c.Text("jid"), User: c.User, Timeout: timeout})
			if err != nil {
				return nil, err
			}
			if answers.Incomplete != "" {
				c.Warn(answers.Incomplete + untargeted)
			}
			return answers.all(), nil
		},
	}}
}
