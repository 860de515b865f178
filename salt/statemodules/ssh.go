package statemodules

import (
	"context"
	"fmt"

	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// run runs a job on minions or, with ssh: True, on targets of a roster. If nothing comes back, why
// may say the reason.
func (o orchestrator) run(ctx context.Context, c orchestrate.Call, j job, command value.Map) (
	answers []answer, why string, err error) {
	if !value.Truth(c.Arg("ssh")) {
		answers, err = o.minions.run(ctx, j)
		return answers, "", err
	}
	all, logged, err := o.d.SSH.Cmd(ctx, j.tgt, j.fun, command)
	if err != nil {
		return nil, "", err
	}
	for _, p := range all {
		a, err := remote(value.Str(p.Key), p.Value)
		if err != nil {
			return nil, "", err
		}
		answers = append(answers, a)
	}
	if len(answers) == 0 {
		why = logged
	}
	return answers, why, nil
}

// remote reads what salt-ssh says of a target.
func remote(id string, v any) (answer, error) {
	m, ok := v.(value.Map)
	if !ok {
		return answer{}, fmt.Errorf("salt-ssh on %s: %s", id, value.Str(v))
	}
	a := answer{id: id, jid: m.String("jid")}
	ret, returned := m.Get("ret")
	if !returned {
		ret, returned = m.Get("return")
	}
	a.ret, a.failed = ret, !returned
	switch code, _ := m.Get("retcode"); n := code.(type) {
	case int64:
		a.retcode = int(n)
	default:
		if value.Truth(n) {
			a.retcode = 1
		}
	}
	return a, nil
}

// explained adds the reason why nothing came back to the comment of a return that failed.
func explained(ret value.Map, why string) value.Map {
	if result, _ := ret.Get("result"); why == "" || result != false {
		return ret
	}
	return ret.Set("comment", ret.String("comment")+": "+why)
}
