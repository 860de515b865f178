package statemodules

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/store/memory"
	"clustermaster/value"
	"clustermaster/wire"
)

// job is an execution function for minions, with the arguments of saltutil.cmd.
type job struct {
	tgt                 any
	tgtType             string
	fun                 string
	arg                 []any
	kwarg               value.Map
	ret                 any // returners
	retConfig, retKwarg any
	timeout             any
	batch, subset       any
	expect              bool // minions that don't return count as failures; otherwise they are left out
	failhard            bool
	user                string
}

// answer is one minion's result of a job. Each minion has one.
type answer struct {
	id      string
	jid     string // "" in a batch
	ret     any
	retcode int
	failed  bool // nothing came back
}

// unresolved begins the error of a publication that matches no minion.
const unresolved = "Master could not resolve minions"

// minions runs jobs in the way of cmd in salt/modules/saltutil.py.
type minions struct{ d Deps }

// run returns the answers in the order of their arrival. No answer at all is not an error.
func (m minions) run(ctx context.Context, j job) ([]answer, error) {
	p, err := m.publication(j)
	if err != nil {
		return nil, err
	}
	o := gather.Options{Timeout: m.timeout(j.timeout), GatherJobTimeout: m.d.GatherJobTimeout,
		SyndicWait: m.d.SyndicWait}
	switch {
	case value.Truth(j.batch):
		return m.batch(ctx, j, p, o)
	case value.Truth(j.subset):
		return m.subset(ctx, j, p, o)
	}
	out, _, err := m.all(ctx, j, p, o)
	return out, err
}

// all runs a job on all minions of its target. Named ids without an accepted key count as failed,
// even if the job leaves silent minions out.
func (m minions) all(ctx context.Context, j job, p gather.Publish, o gather.Options) (out []answer,
	jid string, err error) {
	var held memory.Answer
	o.Hold = held.Keep
	s, err := gather.Run(ctx, m.d.Minions, p, o, func(id string, r gather.Return) {
		out = append(out, answer{id: id, ret: returned(r), retcode: r.Code()})
	})
	if err := m.sent(j, s.Published, err); err != nil {
		return nil, "", err
	}
	silent := s.Missing
	if j.expect {
		silent = s.Silent()
	}
	if len(s.Minions) == 0 && o.SyndicWait == 0 {
		silent = nil // nothing was sent
	}
	for i := range out {
		out[i].jid = s.JID
	}
	for _, id := range silent {
		out = append(out, answer{id: id, failed: true})
	}
	return out, s.JID, nil
}

// batch runs a job on a window of minions. As in Salt, an answer holds the return alone: no
// job id and no return code.
func (m minions) batch(ctx context.Context, j job, p gather.Publish, o gather.Options) ([]answer,
	error) {
	var out []answer
	var ping gather.Published
	var held memory.Answer
	o.Hold = held.Keep
	b := gather.Batch{
		Job: p, Size: value.Str(j.batch), Failhard: j.failhard, Options: o,
		Fire: m.d.Fire, User: m.d.User,
		OnPing: func(s gather.Summary) { ping = s.Published },
		OnReturn: func(id string, r gather.Return) {
			out = append(out, answer{id: id, ret: returned(r)})
		},
		OnSilent: func(id string) { out = append(out, answer{id: id, ret: value.Map{}}) },
	}
	_, err := b.Run(ctx, m.d.Minions)
	if err := m.sent(j, ping, err); err != nil {
		return nil, err
	}
	return out, nil
}

// subset runs a job on randomly chosen minions that have the function.
func (m minions) subset(ctx context.Context, j job, p gather.Publish, o gather.Options) ([]answer,
	error) {
	n, ok := wholeNumber(j.subset)
	if !ok {
		return nil, fmt.Errorf("subset must be a number of minions, not %s", value.Repr(j.subset))
	}
	having, s, err := gather.Having(ctx, m.d.Minions, p, o, j.fun)
	if err := m.sent(j, s.Published, err); err != nil || len(having) == 0 {
		return nil, err
	}
	rand.Shuffle(len(having), func(a, b int) { having[a], having[b] = having[b], having[a] })
	p.Tgt, p.TgtType = having[:min(len(having), max(n, 1))], "list"
	out, jid, err := m.all(ctx, j, p, o)
	for i, a := range out {
		if a.failed {
			out[i] = answer{id: a.id, retcode: 1, ret: gather.NoReturn(jid)}
		}
	}
	return out, err
}

// sent checks a publication. One that matches no minion is not an error.
func (m minions) sent(j job, p gather.Published, err error) error {
	if err != nil {
		return err
	}
	if p.Incomplete != "" {
		m.d.Log.Warn("a target was resolved without all minions' data", "fun", j.fun, "tgt",
			value.Str(j.tgt), "covered", p.Incomplete)
	}
	if p.Error != "" && !strings.HasPrefix(p.Error, unresolved) {
		return errors.New(p.Error)
	}
	return nil
}

// publication returns the job in the form in which it is published.
func (m minions) publication(j job) (gather.Publish, error) {
	p := gather.Publish{TgtType: j.tgtType, Fun: j.fun, User: j.user}
	switch tgt := j.tgt.(type) {
	case []any:
		ids := make([]string, len(tgt))
		for i, v := range tgt {
			ids[i] = value.Str(v)
		}
		if p.Tgt = ids; j.tgtType == "compound" {
			p.Tgt = strings.Join(ids, " ")
		}
	case string:
		p.Tgt = tgt
	case nil, value.Map:
		return p, fmt.Errorf("tgt must be a text or a list of ids, not %s", value.Repr(j.tgt))
	default:
		p.Tgt = value.Str(tgt)
	}
	for _, a := range j.arg {
		if digits, ok := value.Int(a); ok && wire.IsJID(digits) {
			a = digits
		}
		p.Arg = append(p.Arg, a)
	}
	if len(j.kwarg) > 0 {
		p.Arg = append(p.Arg, append(value.Map{{Key: "__kwarg__", Value: true}}, j.kwarg...))
	}
	switch ret := j.ret.(type) {
	case nil:
	case []any: // minions accept a text only
		names := make([]string, len(ret))
		for i, v := range ret {
			names[i] = value.Str(v)
		}
		p.Ret = strings.Join(names, ",")
	default:
		p.Ret = value.Str(ret)
	}
	for _, kw := range []struct {
		key   string
		value any
	}{{"ret_config", j.retConfig}, {"ret_kwargs", j.retKwarg}} {
		if value.Truth(kw.value) {
			p.Kwargs = p.Kwargs.Set(kw.key, kw.value)
		}
	}
	return p, nil
}

// timeout is the job's own timeout, or the master's if v is not a positive whole number.
func (m minions) timeout(v any) time.Duration {
	if n, ok := wholeNumber(v); ok && n > 0 {
		return time.Duration(min(n, maxSeconds)) * time.Second
	}
	return m.d.Timeout
}

// maxSeconds is the longest time that a state can ask for: about ten years.
const maxSeconds = 10 * 365 * 24 * 3600

// wholeNumber is Python's int() of a number or a text.
func wholeNumber(v any) (int, bool) {
	switch v := v.(type) {
	case int64:
		return int(v), true
	case float64:
		return int(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case string:
		return value.ParseInt(v)
	}
	return 0, false
}

// returned is a minion's return; nil if it can't be decoded.
func returned(r gather.Return) any {
	if len(r.Return) == 0 {
		return nil
	}
	v, err := r.Return.Unpack()
	if err != nil {
		return nil
	}
	return v
}

// jidOf returns the job id of the first answer; "" if there is no answer or it has no id.
func jidOf(answers []answer) string {
	if len(answers) == 0 {
		return ""
	}
	return answers[0].jid
}
