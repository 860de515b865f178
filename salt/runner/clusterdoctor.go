package runner

import (
	"context"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Doctor is the function by which masters report on their own machines. report returns, as JSON
// text, the reports of the masters with these ids, or of this one alone if there are no ids. It
// also returns the ids of those that did not answer.
func Doctor(status ClusterStatus, report func(ctx context.Context, nonce string,
	ids []string) (reports string, missing []string, err error)) []Function {
	return []Function{{
		Name: "cluster.reports", Params: []function.Param{function.Opt("all", false)},
		Doc: `Have this master, or all that are reachable, check their machines and configurations;
clustermaster doctor --all prints what they find. Values of options are shown as digests only.

Example:

    salt-run cluster.reports all=True`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			var ids, away []string
			if c.True("all") {
				v, err := status.View(ctx)
				if err != nil {
					return nil, err
				}
				for _, p := range v.Peers {
					if p.Reachable || p.ID == v.ID {
						ids = append(ids, p.ID)
					} else {
						away = append(away, p.ID)
					}
				}
			}
			reports, missing, err := report(ctx, c.JID, ids)
			if err != nil {
				return nil, err
			}
			return value.Map{{Key: "reports", Value: reports},
				{Key: "missing", Value: value.Texts(append(missing, away...))}}, nil
		},
	}}
}
