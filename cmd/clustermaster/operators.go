package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clustermaster/config/settings"
	"clustermaster/internal/origin"
	"clustermaster/keystore"
	"clustermaster/salt/gather"
	"clustermaster/salt/runner"
	"clustermaster/salt/target"
	"clustermaster/serve/acl"
	"clustermaster/serve/event"
	"clustermaster/serve/master"
	"clustermaster/serve/operator"
	"clustermaster/store/cache"
	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/wire"
)

// operators is what the commands and the runners ask of this master: it joins
// the rooms to the small interfaces of packages operator and runner.
type operators struct {
	*rooms
	runners, wheels *runner.Runner
	life            context.Context //nolint:containedctx // of calls that go on after their caller has left
}

// wait returns when the calls that nobody waits for have ended.
func (t *operators) wait() {
	t.runners.Wait()
	t.wheels.Wait()
}

var (
	_ operator.Minions = (*operators)(nil)
	_ operator.Keys    = (*operators)(nil)
	_ operator.Runners = (*operators)(nil)
	_ master.Runners   = (*operators)(nil)
	_ runner.Asker     = (*operators)(nil)
	_ runner.Keys      = (*operators)(nil)
	_ runner.Watcher   = (*operators)(nil)
	_ runner.Store     = (*operators)(nil)
	_ runner.JobReader = jobReader{}
)

// newOperators makes the registries of runner and wheel functions.
func newOperators(r *rooms) (*operators, error) {
	t := &operators{rooms: r}
	o := r.opts
	keys := runner.KeyFamilyDeps{Keys: t, Fingerprint: wire.Fingerprint, HashType: o.HashType, Local: func() (map[string]string, error) { return t.localKeys(), nil }}
	minions := runner.ManageDeps{Minions: t, Keys: t, Version: saltVersion}
	wheels, err := runner.NewRegistry(
		runner.KeyFamily(keys), runner.ConnectedWheel(minions), runner.ConfigWheel(func() value.Map { m, _ := settings.Value(o.Values()).(value.Map); return m }),
	)
	if err != nil {
		return nil, err
	}
	var registry *runner.Registry
	registry, err = runner.NewRegistry(
		runner.Cluster(clusterStatus{r}), runner.AuditTrail(auditTrail{r.node}), runner.DryRuns(clusterStatus{r}, runner.Orders(clusterOrders{r.node})),
		runner.Upgrades(runner.UpgradeDeps{Status: clusterStatus{r}, Members: clusterOrders{r.node}, Restart: upgradeCommand(o.ClusterUpgradeCommand)}),
		runner.Doctor(clusterStatus{r}, r.reports), runner.Rescue(r.node), runner.Backups(clusterBackups{r}), runner.Identity(clusterIdentity{r.node, o.HashType}),
		runner.SaltCluster(o.ID), runner.Roots(rootsSync{r}),
		runner.Jobs(runner.JobsDeps{Jobs: jobReader{r.jobs}, Minions: t, Running: func() []value.Map { return t.runners.Running() }}),
		runner.Manage(minions),
		runner.CacheFamily(cached{r}, t), runner.CacheClearing(r.data, t), runner.CacheBanks(cacheBanks{r.banks}, o.CacheDir),
		runner.Pillar(pillarMaker{r}, t), runner.Mine(mineReader{r}, t),
		runner.Fileserver(servedFiles{r}), runner.Pushed(pushedFiles{r}, t),
		runner.Config(func() value.Map { m, _ := settings.Value(o.Extra).(value.Map); return m }),
		runner.Documentation(func() *runner.Registry { return registry }, func() *runner.Registry { return wheels }),
		runner.State(t), runner.OrchestrationFamily(orchestrations{newOrchestrator(t), pauses{r}}), runner.Events(func(tag string, data value.Map) { r.bus.Fire(tag, data) }),
		runner.Salt(t), runner.Auth(tokenMaker{r.auth}), runner.OnMaster(onMaster{r}), runner.Matching(t), runner.ReactorFamily(reactors{r}), runner.Test(), laterFunctions(r),
	)
	if err != nil {
		return nil, err
	}
	deps := runner.Deps{ID: o.ID, Events: r.bus, NewJID: func() string { return r.master.NewJID() }, Log: r.log}
	if o.RunnerReturns {
		deps.Store = t
	}
	t.runners, t.wheels = runner.New(runner.RunnerClient, registry, deps), runner.New(runner.WheelClient, wheels, deps)
	return t, nil
}

// NewJID implements gather.Master.
func (t *operators) NewJID(context.Context) (string, error) { return t.master.NewJID(), nil }

// Publish implements gather.Master.
func (t *operators) Publish(ctx context.Context, p gather.Publish) (gather.Published, error) {
	return t.PublishAs(ctx, p, nil)
}

// PublishAs implements operator.Minions.
func (t *operators) PublishAs(ctx context.Context, p gather.Publish, rights *acl.Rights) (gather.Published, error) {
	if err := t.served(ctx, p.Patience); err != nil {
		return gather.Published{}, err
	}
	done, err := t.master.Publish(ctx, master.PublishRequest{
		Tgt: p.Tgt, TgtType: p.TgtType, Fun: p.Fun, Arg: p.Arg, Ret: p.Ret, JID: p.JID, User: p.User, Kwargs: p.Kwargs, Timeout: p.Timeout,
		Rights: rights,
	})
	return gather.Published(done), err
}

// Owner implements operator.Minions.
func (t *operators) Owner(ctx context.Context, jid string) (user, eauth string, found bool, err error) {
	owner, found, err := t.jobs.Owner(ctx, jid)
	return owner.User, owner.Eauth, found, err
}

// maxPatience is how long a command waits at most for a master that was just started.
const maxPatience = 10 * time.Second

// served waits, no longer than patience, until this master serves. The error says why it does not.
func (t *operators) served(ctx context.Context, patience time.Duration) error {
	if patience <= 0 || patience > maxPatience {
		patience = maxPatience
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = t.node.WaitServing(wait) // one that served once may do so no more
	if why := t.node.NotServing(); why != "" {
		return fmt.Errorf("this master does not serve: %s; its log and salt-run cluster.members tell more", why)
	}
	return ctx.Err()
}

// watching is a subscription to the whole cluster, handed on as gather's events.
type watching struct {
	sub *event.Subscription
	c   chan gather.Event
	end chan struct{}
}

func (w *watching) C() <-chan gather.Event { return w.c }

func (w *watching) Close() {
	close(w.end)
	w.sub.Close()
}

// Subscribe implements gather.Master.
func (t *operators) Subscribe(ctx context.Context, prefix string) (gather.Events, error) {
	sub, err := t.mesh.Subscribe(ctx, prefix)
	if err != nil {
		return nil, err
	}
	w := &watching{sub: sub, c: make(chan gather.Event), end: make(chan struct{})}
	go func() {
		defer close(w.c)
		for {
			var next gather.Event
			select {
			case e, ok := <-sub.C:
				if !ok {
					return
				}
				next = gather.Event{Tag: e.Tag, Data: e.Data}
			case <-sub.Lost():
				next.Lost = true
			case <-w.end:
				return
			}
			select {
			case w.c <- next:
			case <-w.end:
				return
			}
		}
	}()
	return w, nil
}

// ReadReturns implements gather.Master.
func (t *operators) ReadReturns(ctx context.Context, jid string, ids []string, fn func(id string, r gather.Return) error) error {
	return t.jobs.ReadReturns(ctx, jid, ids, func(id string, r jobcache.Return) error {
		return fn(id, gather.Return{Return: r.Return, Retcode: r.Retcode, Success: r.Success, Out: r.Out})
	})
}

// Targets implements operator.Minions.
func (t *operators) Targets(ctx context.Context, tgt any, tgtType, delimiter string) (operator.Targeted, error) {
	if err := t.served(ctx, 0); err != nil {
		return operator.Targeted{}, err
	}
	found, err := target.Match(ctx, tgtType, tgt, delimiter, targets{t.rooms}, true)
	return operator.Targeted(found), err
}

// Certain implements operator.Minions.
func (t *operators) Certain(ctx context.Context, compound string) ([]string, error) {
	found, err := target.Certain(ctx, "compound", compound, "", targets{t.rooms})
	return found.Minions, err
}

// Resolve implements runner.Resolver.
func (t *operators) Resolve(ctx context.Context, tgtType string, tgt any) (ids []string, incomplete string, err error) {
	found, err := target.Match(ctx, tgtType, tgt, "", targets{t.rooms}, true)
	return found.Minions, found.Incomplete, err
}

// Ask implements runner.Asker.
func (t *operators) Ask(ctx context.Context, a runner.Ask) (runner.Answers, error) {
	args := a.Args
	if len(a.Kwargs) > 0 {
		args = append(slices.Clip(args), append(value.Map{{Key: "__kwarg__", Value: true}}, a.Kwargs...))
	}
	opts := gather.Options{Timeout: a.Timeout, GatherJobTimeout: a.Gather}
	if opts.Timeout <= 0 {
		opts.Timeout = t.opts.Timeout
	}
	if opts.GatherJobTimeout <= 0 {
		opts.GatherJobTimeout = t.opts.GatherJobTimeout
	}
	out := runner.Answers{Returned: make(map[string]runner.Answer)}
	summary, err := gather.Run(ctx, t, gather.Publish{
		Tgt: a.Tgt, TgtType: a.TgtType, Fun: a.Fun, Arg: args, Ret: a.Ret, JID: a.JID, User: a.User,
	}, opts, func(id string, ret gather.Return) {
		v, err := value.Unpack(ret.Return)
		if err != nil {
			v = nil
		}
		out.Returned[id] = runner.Answer{Return: v, Retcode: ret.Code()}
	})
	out.JID, out.Minions, out.Incomplete = summary.JID, summary.Minions, summary.Incomplete
	return out, err
}

// Watch implements runner.Watcher.
func (t *operators) Watch(ctx context.Context, prefix string) (<-chan runner.Event, []string, error) {
	sub, err := t.mesh.Subscribe(ctx, prefix)
	if err != nil {
		return nil, nil, err
	}
	out := make(chan runner.Event)
	go func() {
		defer close(out)
		defer sub.Close()
		for {
			select {
			case e, ok := <-sub.C:
				if !ok {
					return
				}
				select {
				case out <- runner.Event{Tag: e.Tag, Data: e.Data}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, t.ids(sub.Unconfirmed()), nil
}

// ids turns node names into the ids that operators know.
func (t *operators) ids(nodes []string) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i], _, _ = strings.Cut(n, "/")
	}
	return out
}

// SaveRun implements runner.Store.
func (t *operators) SaveRun(ctx context.Context, jid string, load value.Map, id string, ret value.Map) error {
	if err := t.jobs.SaveLoad(ctx, jid, load, nil); err != nil {
		return err
	}
	packed, err := value.Pack(ret)
	if err != nil {
		return fmt.Errorf("pack result of job %s: %w", jid, err)
	}
	_, err = t.jobs.SaveReturn(ctx, jid, id, jobcache.Return{Return: packed}, nil)
	return err
}

// Run implements operator.Runners.
func (t *operators) Run(ctx context.Context, r operator.RunRequest, out func(kind string, v any)) (operator.RunResult, error) {
	req := runner.Request{Fun: r.Fun, Args: r.Args, Kwargs: r.Kwargs, JID: r.JID, User: r.User}
	run := t.runners
	if runner.OrchestrateWithJID(req.Fun) {
		if req.JID == "" {
			req.JID = t.master.NewJID()
		}
		if _, given := req.Kwargs.Get("orchestration_jid"); !given {
			req.Kwargs = append(slices.Clip(req.Kwargs), value.Pair{Key: "orchestration_jid", Value: req.JID})
		}
	}
	if fun, ok := strings.CutPrefix(r.Fun, "wheel."); ok {
		run, req.Fun = t.wheels, fun
	}
	if r.Async {
		jid, err := run.Start(origin.Hand(t.life, ctx), req)
		return operator.RunResult{JID: jid, Return: run.Tag(jid), Success: err == nil}, err
	}
	res := run.Run(ctx, req, out)
	return operator.RunResult{
		JID: res.JID, Return: res.Return, Success: res.Success, Retcode: res.Retcode, Outputter: res.Outputter, NotRun: res.NotRun,
	}, ctx.Err()
}

// StartRunner implements master.Runners.
func (t *operators) StartRunner(ctx context.Context, o master.RunOrder) (jid, tag string, err error) {
	jid, err = t.runners.Start(origin.Hand(t.life, ctx), runner.Request{Fun: o.Fun, Args: o.Args, Kwargs: o.Kwargs, ByName: o.ByName, User: o.User})
	return jid, t.runners.Tag(jid), err
}

// RunWheel implements master.Runners.
func (t *operators) RunWheel(ctx context.Context, o master.RunOrder) master.Ran {
	res := t.wheels.Run(ctx, runner.Request{Fun: o.Fun, Args: o.Args, Kwargs: o.Kwargs, ByName: o.ByName, User: o.User}, nil)
	return master.Ran{JID: res.JID, Tag: t.wheels.Tag(res.JID), Return: res.Return, Success: res.Success, Refused: res.Refused}
}

// Docs implements operator.Runners.
func (t *operators) Docs(prefix string) value.Map { return t.runners.Docs(prefix) }

// Lists implements operator.Keys.
func (t *operators) Lists(ctx context.Context, texts bool) (operator.KeyLists, error) {
	lists := operator.KeyLists{Local: t.localKeys(), Note: t.readIndex(ctx)}
	all := t.keys.List()
	for _, s := range keystore.States {
		for _, id := range all[s] {
			k := operator.Key{ID: id, State: s.String()}
			if texts {
				k.Pub, _ = t.keys.Text(id, s)
			}
			lists.Keys = append(lists.Keys, k)
		}
	}
	return lists, nil
}

// readIndex waits until this master knows what the leader knows. Without a
// quorum what it knows is shown all the same, with this note: a look changes nothing.
func (t *operators) readIndex(ctx context.Context) (note string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := t.node.ReadIndex(ctx); err != nil {
		t.log.Warn("the leader could not be asked; showing what this master knew last", "component", "operator", "err", err)
		return staleNote + err.Error()
	}
	return ""
}

// staleNote begins what is said of an answer that the leader did not confirm.
const staleNote = "this master can't ask the leader and shows what it knew last: "

// localKeys are the public parts of this master's own keys.
func (t *operators) localKeys() map[string]string {
	out := make(map[string]string)
	if k := t.node.ClusterKey(); k != nil {
		name := "master.pub"
		if t.opts.ClusterID != "" {
			name = "cluster.pub"
		}
		out[name] = k.Public().Text()
	}
	if b, err := os.ReadFile(filepath.Join(t.opts.PkiDir, t.opts.MasterSignKeyName+".pub")); err == nil {
		out[t.opts.MasterSignKeyName+".pub"] = string(b)
	}
	return out
}

// Change implements operator.Keys.
func (t *operators) Change(ctx context.Context, c operator.KeyChange) (operator.KeysChanged, error) {
	ids := make([]string, 0, len(c.Keys))
	named := make(map[string]bool, len(c.Keys))
	var states []keystore.State
	for _, k := range c.Keys {
		s, ok := keystore.ParseState(k.State)
		if !ok {
			return operator.KeysChanged{}, fmt.Errorf("change keys: no state %q", k.State)
		}
		if !slices.Contains(states, s) {
			states = append(states, s)
		}
		if !named[k.ID] {
			named[k.ID] = true
			ids = append(ids, k.ID)
		}
	}
	changed, warnings, err := t.changeKeys(ctx, c.Action, ids, states, c.PreserveMinions || t.opts.PreserveMinionCache, !c.KeepAESKey && t.opts.RotateAESKey)
	out := operator.KeysChanged{Warnings: warnings}
	for _, k := range changed {
		out.Changed = append(out.Changed, operator.Key{ID: k.ID, State: k.State.String()})
	}
	return out, err
}

// changeKeys changes keys on every master, fires salt/key for each, and after a
// deletion or rejection takes the AES key out of the hands of those minions.
func (t *operators) changeKeys(ctx context.Context, action string, ids []string, states []keystore.State, preserve, rotate bool) ([]keystore.Key, []string, error) {
	act, ok := map[string]keystore.Action{"accept": keystore.AcceptKeys, "reject": keystore.RejectKeys, "delete": keystore.DeleteKeys}[action]
	if !ok {
		return nil, nil, fmt.Errorf("change keys: no action %q", action)
	}
	changed, _, err := t.keys.Change(ctx, act, ids, states...)
	var warnings []string
	var warning *keystore.Warning
	if errors.As(err, &warning) {
		warnings, err = append(warnings, warning.Error()), nil
	}
	if err != nil {
		return nil, nil, err
	}
	words := map[string]string{"accept": "accepted", "reject": "rejected", "delete": "delete"}
	for _, k := range changed {
		data := value.Map{{Key: "result", Value: true}, {Key: "act", Value: words[action]}, {Key: "id", Value: k.ID}}
		if action != "delete" {
			data = append(data, value.Pair{Key: "pub", Value: k.Pub})
		}
		t.bus.Fire("salt/key", data)
		if action == "delete" && !preserve {
			if err := t.data.Drop(ctx, k.ID, true); err != nil {
				warnings = append(warnings, fmt.Sprintf("the cached grains and pillar of %s are not removed: %v", k.ID, err))
			}
		}
	}
	if action != "accept" && rotate && len(changed) > 0 {
		if err := t.node.RotateAES(ctx); err != nil {
			warnings = append(warnings, fmt.Sprintf("the AES key is not rotated, so these minions can still read publications: %v", err))
		} else {
			t.bus.Fire("key", value.Map{{Key: "rotate_aes_key", Value: true}})
		}
	}
	return changed, warnings, nil
}

// KeyLists implements runner.Keys.
func (t *operators) KeyLists(ctx context.Context) (lists map[string][]string, note string, err error) {
	note = t.readIndex(ctx)
	lists = make(map[string][]string)
	for s, ids := range t.keys.List() {
		lists[s.String()] = ids
	}
	return lists, note, nil
}

// KeyText implements runner.Keys.
func (t *operators) KeyText(_ context.Context, id, state string) (string, bool, error) {
	s, ok := keystore.ParseState(state)
	if !ok {
		return "", false, nil
	}
	pem, ok := t.keys.Text(id, s)
	return pem, ok, nil
}

// ChangeKeys implements runner.Keys.
func (t *operators) ChangeKeys(ctx context.Context, action runner.KeyAction, ids, states []string) (runner.KeyChange, error) {
	var from []keystore.State
	for _, name := range states {
		s, ok := keystore.ParseState(name)
		if !ok {
			return runner.KeyChange{}, fmt.Errorf("change keys: no state %q", name)
		}
		from = append(from, s)
	}
	changed, warnings, err := t.changeKeys(ctx, string(action), ids, from, t.opts.PreserveMinionCache, t.opts.RotateAESKey)
	out := runner.KeyChange{Warnings: warnings}
	for _, k := range changed {
		out.Changed = append(out.Changed, k.ID)
	}
	return out, err
}

// jobReader shows the job cache to runners.
type jobReader struct{ *jobcache.Cache }

func record(j jobcache.Job) runner.JobRecord {
	return runner.JobRecord{JID: j.JID, Load: j.Load, Minions: j.Minions, EndTime: j.EndTime}
}

func (j jobReader) Job(ctx context.Context, jid string) (runner.JobRecord, bool, error) {
	job, ok, err := j.Cache.Job(ctx, jid)
	return record(job), ok, err
}

func (j jobReader) Returns(ctx context.Context, jid string) (map[string]runner.JobReturn, error) {
	returns, err := j.Cache.Returns(ctx, jid)
	if err != nil {
		return nil, err
	}
	out := make(map[string]runner.JobReturn, len(returns))
	for id, r := range returns {
		ret := runner.JobReturn{Out: r.Out}
		for _, f := range []struct {
			to   *any
			from value.Raw
		}{{&ret.Return, r.Return}, {&ret.Retcode, r.Retcode}, {&ret.Success, r.Success}} {
			if len(f.from) == 0 {
				continue
			}
			if *f.to, err = value.Unpack(f.from); err != nil {
				return nil, fmt.Errorf("read return of minion %s: %w", id, err)
			}
		}
		out[id] = ret
	}
	return out, nil
}

func (j jobReader) Jobs(ctx context.Context) ([]runner.JobRecord, string, error) {
	jobs, cover, err := j.Cache.Jobs(ctx)
	if err != nil {
		return nil, "", err
	}
	out := make([]runner.JobRecord, len(jobs))
	for i, job := range jobs {
		out[i] = record(job)
	}
	return out, cover.String(), nil
}

// cacheBanks shows the cache to runners.
type cacheBanks struct{ *cache.Cache }

func (c cacheBanks) Migrate(ctx context.Context, cachedir, bank string, dry bool) (map[string]int, int, error) {
	done, err := c.Cache.Migrate(ctx, cachedir, bank, dry)
	return done.Keys, done.Errors, err
}

// cached shows minions' data to runners.
type cached struct{ r *rooms }

func (c cached) Grains(ctx context.Context, id string) (value.Map, bool, error) {
	return c.r.data.Grains(ctx, id)
}
func (c cached) Pillar(ctx context.Context, id string) (value.Map, bool, error) {
	return c.r.data.Pillar(ctx, id)
}
func (c cached) Mine(ctx context.Context, id string) (value.Map, bool, error) {
	m, err := c.r.data.Mine(ctx, id)
	return m, m != nil, err
}
