package orders

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/runner"
	"clustermaster/serve/operator"
	"clustermaster/serve/origin"
	"clustermaster/store/jobcache"
	"clustermaster/store/memory"
	"clustermaster/value"
	"clustermaster/wire"
)

// Python carries out what Python code of the site and of Salt orders from this master: jobs, runner
// and wheel functions by Salt's clients, and queries of the job cache. That code runs as the
// master's user, so it may order anything.
type Python struct {
	Minions   operator.Minions
	Functions *Functions
	Jobs      *jobcache.Cache
	NewJID    func() string
	Fire      func(tag string, data value.Map) // an event on the cluster's bus
	Key       func() *wire.PrivateKey          // the cluster's; nil before founding
}

// JobCache lists the functions of Salt's returner local_cache that the cluster's job cache answers.
var JobCache = []string{
	"local_cache.clean_old_jobs", "local_cache.get_endtime", "local_cache.get_jid",
	"local_cache.get_jids", "local_cache.get_load",
	"local_cache.prep_jid", "local_cache.returner", "local_cache.save_load",
	"local_cache.save_minions", "local_cache.update_endtime",
}

// Natives lists the runner functions that Python code gets as its own __salt__.
func (p Python) Natives() []string {
	return slices.DeleteFunc(slices.Clone(p.Functions.Runners.NativeNames()),
		func(fun string) bool { return strings.HasPrefix(fun, "saltutil.") })
}

// Answer answers q. Known is false if q asks for none of these.
func (p Python) Answer(ctx context.Context, q pythonhost.Question) (v any, known bool, err error) {
	switch q.What {
	case "runner":
		v, err = p.Functions.Runners.Native(ctx, q.Fun, q.Args, q.Kwargs)
	case "returner":
		v, err = p.jobCache(ctx, q)
	case "targets":
		v, err = p.targets(ctx, q.Kwargs)
	case "order":
		v, err = p.order(ctx, q.Fun, q.Kwargs)
	case "event":
		data, _ := q.Kwargs.Get("data")
		m, ok := data.(value.Map)
		if !ok {
			return nil, true, fmt.Errorf("the data of event %s must be a map", q.Fun)
		}
		p.Fire(q.Fun, m)
	case "sign", "verify":
		v, err = p.crypt(q)
	case "has":
		run, fun := p.client(q.Fun)
		_, v = run.Lookup(fun)
	case "run":
		v, err = p.run(ctx, q.Fun, q.Kwargs)
	case "start":
		run, fun := p.client(q.Fun)
		v, err = p.start(ctx, run, request(fun, q.Kwargs))
	default:
		return nil, false, nil
	}
	return v, true, err
}

// crypt signs a message with the cluster's key, or reports whether it signed one. q.Fun is Salt's
// name of the algorithm.
func (p Python) crypt(q pythonhost.Question) (any, error) {
	key := p.Key()
	if key == nil {
		return nil, errors.New("there is no cluster key yet")
	}
	var given [2][]byte // message, signature
	for i := range min(len(q.Args), len(given)) {
		given[i], _ = q.Args[i].([]byte)
	}
	if q.What == "sign" {
		return key.Sign(q.Fun, given[0])
	}
	err := key.Public().Verify(q.Fun, given[0], given[1])
	if errors.Is(err, wire.ErrAlgorithm) {
		return nil, err
	}
	return err == nil, nil
}

// targets resolves a target among accepted minions.
func (p Python) targets(ctx context.Context, m value.Map) (any, error) {
	tgt, _ := m.Get("tgt")
	if list, ok := tgt.([]any); ok {
		tgt = plain(list)
	}
	found, err := p.Minions.Targets(ctx, tgt, m.String("tgt_type"), m.String("delimiter"))
	if err != nil {
		return nil, err
	}
	return value.Map{{Key: "minions", Value: value.Texts(found.Minions)},
		{Key: "missing", Value: value.Texts(found.Missing)},
		{Key: "incomplete", Value: found.Incomplete}}, nil
}

// client returns the functions to which "runner.module.function" or "wheel.module.function"
// belongs.
func (p Python) client(full string) (*runner.Runner, string) {
	client, fun, _ := strings.Cut(full, ".")
	return p.Functions.of(client == "wheel"), fun
}

func request(fun string, m value.Map) runner.Request {
	r := runner.Request{Fun: fun, JID: m.String("jid"), User: m.String("user")}
	v, _ := m.Get("args")
	r.Args, _ = v.([]any)
	v, _ = m.Get("kwargs")
	r.Kwargs, _ = v.(value.Map)
	v, _ = m.Get("by_name")
	r.ByName = v == true
	return r
}

// run makes a call, and returns the data of its ret event in the form of Salt's clients.
func (p Python) run(ctx context.Context, full string, m value.Map) (any, error) {
	run, fun := p.client(full)
	req := request(fun, m)
	if req.User == "" {
		req.User = "UNKNOWN"
	}
	res := run.Run(ctx, req, nil)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if told, ok := res.Return.(runner.Told); ok {
		res.Return = told.Value
	}
	args := append([]any{}, req.Args...)
	if len(req.Kwargs) > 0 {
		args = append(args, req.Kwargs)
	}
	done := value.Map{
		{Key: "fun", Value: full}, {Key: "jid", Value: res.JID}, {Key: "user", Value: req.User},
		{Key: "fun_args", Value: args}, {Key: "return", Value: res.Return},
		{Key: "success", Value: res.Success}, {Key: "_stamp", Value: wire.Stamp(time.Now())},
	}
	if res.Retcode != 0 {
		done = append(done, value.Pair{Key: "retcode", Value: int64(res.Retcode)})
	}
	return done, nil
}

func (p Python) start(ctx context.Context, run *runner.Runner, req runner.Request) (any, error) {
	jid, err := run.Start(origin.Hand(p.Functions.Life, ctx), req)
	if err != nil {
		return nil, err
	}
	return value.Map{{Key: "tag", Value: run.Tag(jid)}, {Key: "jid", Value: jid}}, nil
}

// order carries out what a client would send to port 4506.
func (p Python) order(ctx context.Context, cmd string, load value.Map) (any, error) {
	switch cmd {
	case "publish":
		return p.publish(ctx, load)
	case "runner", "wheel":
		return p.call(ctx, cmd, load)
	}
	return nil, fmt.Errorf("the order %.40q can't be given from Python on this master", cmd)
}

func (p Python) publish(ctx context.Context, load value.Map) (any, error) {
	tgt, _ := load.Get("tgt")
	fun, _ := load.Get("fun")
	arg, _ := load.Get("arg")
	args, ok := arg.([]any)
	if tgt == nil || fun == nil || !ok {
		return nil, errors.New("a job needs tgt, fun and arg")
	}
	kw, _ := load.Get("kwargs")
	kwargs, _ := kw.(value.Map)
	r := gather.Publish{Tgt: tgt, TgtType: load.String("tgt_type"), Fun: fun, Arg: args,
		Ret: load.String("ret"), JID: load.String("jid"), User: load.String("user"), Kwargs: kwargs,
		Timeout: seconds(load)}
	done, err := p.Minions.PublishAs(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	reply := value.Map{{Key: "jid", Value: done.JID}, {Key: "minions", Value: value.Texts(done.Minions)},
		{Key: "missing", Value: value.Texts(done.Missing)}}
	if done.Error != "" {
		reply = value.Map{{Key: "jid", Value: nil}, {Key: "minions", Value: []any{}},
			{Key: "error", Value: done.Error}}
	}
	return value.Map{{Key: "enc", Value: "clear"}, {Key: "load", Value: reply}}, nil
}

// seconds reads the field "to" of a job: how long its client waits.
func seconds(load value.Map) time.Duration {
	var to float64
	switch v, _ := load.Get("to"); v := v.(type) {
	case int64:
		to = float64(v)
	case float64:
		to = v
	}
	if to <= 0 || to > 1e9 || math.IsNaN(to) {
		return 0
	}
	return time.Duration(to * float64(time.Second))
}

// call makes a runner or wheel call given in one of the forms of low data that clients send.
func (p Python) call(ctx context.Context, cmd string, load value.Map) (any, error) {
	fun := load.String("fun")
	low := load
	if cmd == "runner" {
		v, _ := load.Get("kwarg")
		low, _ = v.(value.Map)
	}
	m := value.Map{{Key: "user", Value: load.String("user")}}
	arg, hasArg := low.Get("arg")
	kwarg, hasKwarg := low.Get("kwarg")
	if hasArg && hasKwarg {
		m = append(m, value.Pair{Key: "args", Value: arg}, value.Pair{Key: "kwargs", Value: kwarg})
	} else {
		m = append(m, value.Pair{Key: "kwargs", Value: low.Without("cmd", "fun", "user", "key")},
			value.Pair{Key: "by_name", Value: true})
	}
	if cmd == "runner" {
		return p.start(ctx, p.Functions.Runners, request(fun, m))
	}
	done, err := p.run(ctx, "wheel."+fun, m)
	if err != nil {
		return nil, err
	}
	data, _ := done.(value.Map)
	tag := p.Functions.Wheels.Tag(data.String("jid"))
	return value.Map{{Key: "tag", Value: tag},
		{Key: "data", Value: append(data, value.Pair{Key: "tag", Value: tag})}}, nil
}

// jobCache answers a function of the returner local_cache.
func (p Python) jobCache(ctx context.Context, q pythonhost.Question) (any, error) {
	named := func(i int, name string) any {
		if v, ok := q.Kwargs.Get(name); ok {
			return v
		}
		if i < len(q.Args) {
			return q.Args[i]
		}
		return nil
	}
	jid, _ := named(0, "jid").(string)
	switch _, fun, _ := strings.Cut(q.Fun, "."); fun {
	case "clean_old_jobs":
		return nil, nil
	case "prep_jid":
		if given, _ := named(1, "passed_jid").(string); given != "" {
			return given, nil
		}
		return p.NewJID(), nil
	case "get_load":
		job, found, err := p.Jobs.Job(ctx, jid)
		if !found || err != nil {
			return value.Map{}, err
		}
		if len(job.Minions) > 0 {
			return job.Load.Set("Minions", value.Texts(job.Minions)), nil
		}
		return job.Load, nil
	case "get_endtime":
		job, _, err := p.Jobs.Job(ctx, jid)
		if job.EndTime == "" {
			return false, err
		}
		return job.EndTime, err
	case "get_jid":
		return p.returns(ctx, jid)
	case "get_jids":
		var out value.Map
		var held memory.Answer
		_, err := p.Jobs.EachLoad(ctx, func(jid string, load value.Raw) error {
			out = append(out, value.Pair{Key: jid, Value: load})
			return held.Hold(int64(len(load)))
		})
		slices.SortFunc(out, func(a, b value.Pair) int {
			return strings.Compare(a.Key.(string), b.Key.(string))
		})
		return out, err
	case "save_load":
		load, _ := named(1, "clear_load").(value.Map)
		ids, _ := named(2, "minions").([]any)
		if own, err := p.published(ctx, jid); err != nil {
			return nil, err
		} else if own { // for a roster too
			return nil, p.Jobs.SaveMinions(ctx, jid, "", plain(ids))
		}
		return nil, p.Jobs.SaveLoad(ctx, jid, load, plain(ids))
	case "save_minions":
		ids, _ := named(1, "minions").([]any)
		source, _ := named(2, "syndic_id").(string)
		return nil, p.Jobs.SaveMinions(ctx, jid, source, plain(ids))
	case "update_endtime":
		return nil, p.Jobs.SaveEndTime(ctx, jid, value.Str(named(1, "time")))
	case "returner":
		load, _ := named(0, "load").(value.Map)
		return nil, p.saveReturn(ctx, load)
	}
	return nil, fmt.Errorf("function %s can't be called on this master", q.Fun)
}

func plain(list []any) []string {
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func (p Python) returns(ctx context.Context, jid string) (any, error) {
	returns, err := JobReader{p.Jobs}.Returns(ctx, jid)
	if err != nil {
		return nil, err
	}
	out := make(value.Map, 0, len(returns))
	for id, r := range returns {
		one := value.Map{{Key: "return", Value: r.Return}}
		if r.Retcode != nil {
			one = append(one, value.Pair{Key: "retcode", Value: r.Retcode})
		}
		if r.Success != nil {
			one = append(one, value.Pair{Key: "success", Value: r.Success})
		}
		if r.Out != "" {
			one = append(one, value.Pair{Key: "out", Value: r.Out})
		}
		out = append(out, value.Pair{Key: id, Value: one})
	}
	sort.Slice(out, func(i, j int) bool { return value.Str(out[i].Key) < value.Str(out[j].Key) })
	return out, nil
}

// published reports whether a master published a job, and not Python code of its own accord.
func (p Python) published(ctx context.Context, jid string) (bool, error) {
	job, found, err := p.Jobs.Job(ctx, jid)
	return found && job.Load.String("cmd") == "publish", err
}

// documentOfSSH returns the document that salt-ssh prints on a target, which has the fields of a
// return. Salt's salt.client.ssh stores it whole as what the function returned, but fires its
// fields.
func documentOfSSH(load value.Map) (doc value.Map, whole bool) {
	v, _ := load.Get("return")
	doc, _ = v.(value.Map)
	_, returned := doc.Get("return")
	return doc, returned && doc.String("id") == load.String("id") && doc.String("fun") != "" &&
		doc.String("jid") != ""
}

// saveReturn stores a return made by Python code, for example of a job of its own.
func (p Python) saveReturn(ctx context.Context, load value.Map) error {
	id, jid := load.String("id"), load.String("jid")
	if id == "" || jid == "" || jid == "req" {
		return errors.New("a return needs the fields id and jid")
	}
	var r jobcache.Return
	r.Out = load.String("out")
	if doc, whole := documentOfSSH(load); whole {
		own, err := p.published(ctx, jid)
		if err != nil {
			return err
		}
		if own { // commands read it beside minions' returns
			load = doc
		}
	}
	for _, f := range []struct {
		key string
		to  *value.Raw
	}{{"return", &r.Return}, {"retcode", &r.Retcode}, {"success", &r.Success}} {
		v, given := load.Get(f.key)
		if !given {
			continue
		}
		var err error
		if *f.to, err = value.Pack(v); err != nil {
			return fmt.Errorf("pack return of job %s: %w", jid, err)
		}
	}
	_, err := p.Jobs.SaveReturn(ctx, jid, id, r, nil)
	return err
}
