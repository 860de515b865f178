package main

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/cluster/fsm"
	"clustermaster/config/settings"
	"clustermaster/internal/origin"
	"clustermaster/salt/gather"
	"clustermaster/salt/mastergrains"
	"clustermaster/salt/modules"
	"clustermaster/salt/reactor"
	"clustermaster/salt/render"
	"clustermaster/salt/runner"
	"clustermaster/value"
)

// openReactor makes the reactor; it needs bus, renderer and state only when it runs.
func (r *rooms) openReactor() {
	o := r.opts
	rules, _ := settings.Value(o.Reactor).([]any)
	opts, _ := settings.Value(o.Values()).(value.Map)
	grains := mastergrains.Of(o.ID, saltVersion)
	r.reactor = reactor.New(reactor.Deps{
		Bus: r.bus, Renderer: r.render, Host: masterHost{r, grains, opts, "base"}, File: moduleFiles{r.files}.Open,
		Changes: r.reactorChanges,
		Publish: func(ctx context.Context, j reactor.Job) error {
			done, err := r.operators.Publish(ctx, gather.Publish{
				Tgt: j.Tgt, TgtType: j.TgtType, Fun: j.Fun, Arg: j.Args, Ret: j.Ret, JID: j.JID, User: o.User, Kwargs: j.Kwargs,
			})
			if err == nil && done.Error != "" {
				err = errors.New(done.Error)
			}
			return err
		},
		Run: func(ctx context.Context, client string, c reactor.Call) {
			ctx = origin.With(ctx, origin.Origin{User: reactor.User, From: "reactor", Order: client + "." + c.Fun, Automatic: true})
			r.functions(client).Run(ctx, runner.Request{Fun: c.Fun, Args: c.Args, Kwargs: c.Kwargs, User: reactor.User, Low: true}, nil)
		},
		Caller: func(ctx context.Context, c reactor.Call) error {
			_, found, err := onMaster{r}.Run(ctx, c.Fun, c.Args, c.Kwargs)
			if err == nil && !found {
				err = fmt.Errorf("function %s: %w", c.Fun, modules.ErrUnknown)
			}
			return err
		},
		Signature: func(client, fun string) (reactor.Signature, bool) {
			f, ok := r.functions(client).Lookup(fun)
			sig := reactor.Signature{VarKwargs: f.VarKwargs}
			for _, p := range f.Params {
				sig.Params = append(sig.Params, reactor.Param{Name: p.Name, Required: p.Required, Default: p.Default})
			}
			return sig, ok
		},
	}, reactor.Options{
		Rules: reactor.ReadRules(rules), Renderer: o.Renderer, ID: o.ID, Grains: grains, Opts: opts,
		WorkerThreads: o.ReactorWorkerThreads, WorkerHWM: o.ReactorWorkerHWM,
	}, r.log, r.reg)
}

// functions are the functions of runner or wheel.
func (r *rooms) functions(client string) *runner.Runner {
	if client == "wheel" {
		return r.operators.wheels
	}
	return r.operators.runners
}

// changedReactors is what operators changed of the option reactor, as of an index: it is asked for with each event.
type changedReactors struct {
	index uint64
	reactor.Changes
}

func (r *rooms) reactorChanges() reactor.Changes {
	now := r.node.State().Reactors()
	if known := r.changed.Load(); known != nil && known.index == now.Index {
		return known.Changes
	}
	c := &changedReactors{now.Index, reactor.Changes{Deleted: now.Deleted, Off: now.Off}}
	for _, a := range now.Added {
		files := make([]any, len(a.Files))
		for i, f := range a.Files {
			files[i] = f
		}
		c.Added = append(c.Added, reactor.Rule{Tag: a.Tag, Value: files})
	}
	r.changed.Store(c)
	return c.Changes
}

// masterHost answers templates that are rendered for this master itself.
type masterHost struct {
	r            *rooms
	grains, opts value.Map
	env          string
}

var (
	_ render.Host           = masterHost{}
	_ render.FunctionLister = masterHost{}
)

// Call implements render.Host.
func (h masterHost) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	v, err := h.r.modules.Call(ctx, modules.Minion{ID: h.r.opts.ID, Grains: h.grains, Saltenv: h.env, Opts: h.opts}, fun, args, kwargs)
	if errors.Is(err, modules.ErrUnknown) {
		return nil, fmt.Errorf("function %s: %w", fun, render.ErrUnknownFunction)
	}
	return v, err
}

// HasFunction implements render.FunctionLister.
func (h masterHost) HasFunction(name string) bool { return h.r.modules.Has(name) }

// File implements render.Host: templates import from file_roots.
func (h masterHost) File(_ context.Context, saltenv, path string) ([]byte, bool, error) {
	if saltenv == "" {
		saltenv = h.env
	}
	_, data, found, err := moduleFiles{h.r.files}.Open(saltenv, path)
	return data, found, err
}

// reactors changes the reactors of the whole cluster, for the runner family.
type reactors struct{ r *rooms }

var _ runner.Reactors = reactors{}

func (a reactors) Available() bool { return a.r.reactor.Available() }

func (a reactors) Reactors() []any {
	out := []any{}
	for _, rule := range a.r.reactor.Rules() {
		out = append(out, value.Map{{Key: rule.Tag, Value: rule.Value}})
	}
	return out
}

func (a reactors) Leading() bool                   { return !a.r.node.State().Reactors().Off }
func (a reactors) Fire(tag string, data value.Map) { a.r.bus.Fire(tag, data) }

func (a reactors) AddReactor(ctx context.Context, tag string, files []string) (bool, error) {
	return a.change(ctx, &fsm.ChangeReactor{Action: fsm.AddReactor, Tag: tag, Files: files})
}

func (a reactors) DeleteReactor(ctx context.Context, tag string) (bool, error) {
	return a.change(ctx, &fsm.ChangeReactor{Action: fsm.DeleteReactor, Tag: tag})
}

func (a reactors) Lead(ctx context.Context, on bool) error {
	action := fsm.ReactorsOff
	if on {
		action = fsm.ReactorsOn
	}
	_, err := a.change(ctx, &fsm.ChangeReactor{Action: action})
	return err
}

// change returns when every serving master acts on it.
func (a reactors) change(ctx context.Context, c *fsm.ChangeReactor) (bool, error) {
	c.Configured, c.At = a.r.reactor.Configured(c.Tag), a.r.node.Now().UTC()
	done, index, err := a.r.node.Propose(ctx, c)
	if err != nil {
		return false, fmt.Errorf("change reactors: %w", err)
	}
	switch done.Refused {
	case "":
	case fsm.RefusedFull:
		return false, errors.New("change reactors: 1000 are added or deleted, which is as many as may be; write them into the option reactor")
	default:
		return false, fmt.Errorf("change reactors: refused as %s: a tag has 1024 bytes at most, and 100 files of 4096 bytes", done.Refused)
	}
	a.r.node.ConfirmEverywhere(ctx, index)
	return done.Changed, nil
}
