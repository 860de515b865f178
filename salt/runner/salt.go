package runner

import (
	"context"
	"fmt"

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
			answers, err := executed(ctx, c, minions, Ask{Fun: c.Text("fun"), Args: args,
				Kwargs: kwargs, Ret: c.Text("ret"), JID: c.Text("jid"), Timeout: timeout})
			if err != nil {
				return nil, err
			}
			return answers.all(), nil
		},
	}}
}

// executed asks the minions of the call's target. As in Salt, a refused job gives no answers and is
// reported only by lines of the log.
func executed(ctx context.Context, c *Call, minions Asker, a Ask) (Answers, error) {
	a.Tgt, a.TgtType = c.Arg("tgt"), c.Text("tgt_type")
	answers, err := ask(ctx, c, minions, a)
	if err == nil && answers.Refused != "" {
		c.Error(fmt.Sprintf("Error while executing %s on %s (%s)", a.Fun, value.Str(a.Tgt),
			a.TgtType)) // Salt's text
		c.Error(answers.Refused)
	}
	return answers, err
}
