package orders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/salt/reactor"
	"clustermaster/salt/runner"
	"clustermaster/salt/target"
	"clustermaster/serve/acl"
	"clustermaster/serve/event"
	"clustermaster/serve/master"
	"clustermaster/serve/operator"
	"clustermaster/serve/origin"
	"clustermaster/serve/traces"
	"clustermaster/store/jobcache"
	"clustermaster/store/memory"
	"clustermaster/value"
)

// Node reports whether this master serves; *cluster.Node implements it.
type Node interface {
	WaitServing(ctx context.Context) error
	// NotServing says why the node does not serve; "" if it does.
	NotServing() string
}

// JobsDeps is what Jobs needs from this master.
type JobsDeps struct {
	Node    Node
	Jobs    *jobcache.Cache
	Mesh    *event.Mesh
	Targets target.Source
	Publish func(ctx context.Context, r master.PublishRequest) (master.Published, error)
	NewJID  func() string
	// TakeIn imports keys that others put into the folder of accepted keys; it costs little while
	// there are none.
	TakeIn func(ctx context.Context) (int, error)

	ConfFile         string        // the master's configuration file, for messages
	Timeout          time.Duration // the option timeout
	GatherJobTimeout time.Duration // the option gather_job_timeout
	SyndicWait       time.Duration // as in gather.Options

	// AlsoRoster makes jobs go to targets of the roster as well (option enable_ssh_minions). The
	// next three are needed for that; Life ends the jobs.
	AlsoRoster bool
	Life       context.Context
	Fire       func(tag string, data value.Map)
	Log        *slog.Logger

	// Keep stores a return for master_job_cache. Nil stores none.
	Keep func(jid string, load value.RawMap, end string)
	// Traces learns when commands gather returns. Nil: nothing is traced.
	Traces *traces.Traces
}

// Jobs orders jobs of minions and follows them, for the commands' socket and for runner functions.
type Jobs struct {
	d      JobsDeps
	roster rosterJobs
}

// NewJobs returns Jobs with these dependencies.
func NewJobs(d JobsDeps) *Jobs { return &Jobs{d: d} }

var (
	_ gather.Master    = (*Jobs)(nil)
	_ operator.Minions = (*Jobs)(nil)
	_ runner.Asker     = (*Jobs)(nil)
	_ runner.Resolver  = (*Jobs)(nil)
	_ runner.Matcher   = (*Jobs)(nil)
	_ runner.Watcher   = (*Jobs)(nil)
	_ runner.Store     = (*Jobs)(nil)
)

// NewJID implements gather.Master.
func (j *Jobs) NewJID(context.Context) (string, error) { return j.d.NewJID(), nil }

// Publish implements gather.Master, for runner functions, states and reactions. It does not publish
// a job whose target names an unknown nodegroup, nor does Salt's local client.
func (j *Jobs) Publish(ctx context.Context, p gather.Publish) (gather.Published, error) {
	if why := j.unavailable(p.TgtType, p.Tgt); why != "" {
		return gather.Published{Error: why}, nil
	}
	p.Kwargs = confirmed(ctx, p.User, p.Kwargs)
	return j.PublishAs(ctx, p, nil)
}

// confirmed is acl.Confirmed if a user of external_auth ordered what is done in ctx.
func confirmed(ctx context.Context, user string, kwargs value.Map) value.Map {
	o, _ := origin.Of(ctx)
	if o.Eauth == "" || o.User != user {
		return kwargs
	}
	return acl.Confirmed(kwargs, user, o.Eauth)
}

// unavailable is Salt's text for a target that names an unknown nodegroup, "" for any other.
func (j *Jobs) unavailable(tgtType string, tgt any) string {
	if err := target.CheckGroups(tgtType, tgt, j.d.Targets); err != nil {
		return fmt.Sprintf("%s in %s", err, j.d.ConfFile)
	}
	return ""
}

// React publishes the job of a reaction as a user.
func (j *Jobs) React(ctx context.Context, r reactor.Job, user string) error {
	done, err := j.Publish(ctx, gather.Publish{
		Tgt: r.Tgt, TgtType: r.TgtType, Fun: r.Fun, Arg: r.Args, Ret: r.Ret, JID: r.JID,
		User: user, Kwargs: r.Kwargs,
	})
	if err == nil && done.Error != "" {
		err = errors.New(done.Error)
	}
	return err
}

// PublishAs implements operator.Minions.
func (j *Jobs) PublishAs(ctx context.Context, p gather.Publish,
	rights *acl.Rights) (gather.Published, error) {
	if err := j.served(ctx, p.Patience); err != nil {
		return gather.Published{}, err
	}
	roster := j.d.AlsoRoster && rights == nil
	var also []string
	if roster {
		also = j.rosterTargets(ctx, p)
	}
	done, err := j.d.Publish(ctx, master.PublishRequest{
		Tgt: p.Tgt, TgtType: p.TgtType, Fun: p.Fun, Arg: p.Arg, Ret: p.Ret, JID: p.JID,
		User: p.User, Kwargs: p.Kwargs, Timeout: p.Timeout,
		Rights: rights, Also: also,
	})
	if roster && err == nil {
		j.answerForRoster(p)
		if len(also) > 0 && done.Error == "" {
			j.runOnRoster(done.JID, p, also)
		}
	}
	return gather.Published(done), err
}

// Owner implements operator.Minions.
func (j *Jobs) Owner(ctx context.Context, jid string) (user, eauth string, found bool, err error) {
	owner, found, err := j.d.Jobs.Owner(ctx, jid)
	return owner.User, owner.Eauth, found, err
}

// maxPatience bounds how long a command waits for a master that has just started.
const maxPatience = 10 * time.Second

// served waits up to patience until this master serves, and imports keys, so that an order reaches
// a minion whose key was copied before it. The error says why the master does not serve.
func (j *Jobs) served(ctx context.Context, patience time.Duration) error {
	if patience <= 0 || patience > maxPatience {
		patience = maxPatience
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = j.d.Node.WaitServing(wait) // a master that served once may have stopped serving
	if why := j.d.Node.NotServing(); why != "" {
		return fmt.Errorf("this master does not serve: %s; see its log and salt-run cluster.members", why)
	}
	wait, cancel = context.WithTimeout(ctx, takeInWithin)
	defer cancel()
	_, _ = j.d.TakeIn(wait) // the master logs what it can't import
	return ctx.Err()
}

// watching delivers a subscription to the whole cluster as gather's events.
type watching struct {
	sub    *event.Subscription
	c      chan gather.Event
	end    chan struct{}
	traced *traces.Gathering
}

func (w *watching) C() <-chan gather.Event { return w.c }

func (w *watching) Close() {
	close(w.end)
	w.sub.Close()
	w.traced.Close()
}

// Subscribe implements gather.Master.
func (j *Jobs) Subscribe(ctx context.Context, prefix string) (gather.Events, error) {
	sub, err := j.d.Mesh.Subscribe(ctx, prefix)
	if err != nil {
		return nil, err
	}
	w := &watching{sub: sub, c: make(chan gather.Event), end: make(chan struct{}),
		traced: j.d.Traces.Gather(prefix)}
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
				w.traced.Event(e.Tag)
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
func (j *Jobs) ReadReturns(ctx context.Context, jid string, ids []string,
	fn func(id string, r gather.Return) error) error {
	return j.d.Jobs.ReadReturns(ctx, jid, ids, func(id string, r jobcache.Return) error {
		return fn(id, gather.Return{Return: r.Return, Retcode: r.Retcode, Success: r.Success,
			Out: r.Out})
	})
}

// Targets implements operator.Minions.
func (j *Jobs) Targets(ctx context.Context, tgt any, tgtType, delimiter string) (operator.Targeted,
	error) {
	if err := j.served(ctx, 0); err != nil {
		return operator.Targeted{}, err
	}
	found, err := target.Match(ctx, tgtType, tgt, delimiter, j.d.Targets, true)
	return operator.Targeted(found), err
}

// Certain implements operator.Minions.
func (j *Jobs) Certain(ctx context.Context, compound string) ([]string, error) {
	found, err := target.Certain(ctx, "compound", compound, "", j.d.Targets)
	return found.Minions, err
}

// Resolve implements runner.Resolver.
func (j *Jobs) Resolve(ctx context.Context, tgtType string, tgt any) (ids []string,
	incomplete string, err error) {
	found, err := target.Match(ctx, tgtType, tgt, "", j.d.Targets, true)
	return found.Minions, found.Incomplete, err
}

// Means implements runner.Matcher.
func (j *Jobs) Means(ctx context.Context, compound any, id string) (bool, string, error) {
	if !j.d.Targets.DataCache() {
		return false, "", nil
	}
	return target.Means(ctx, "compound_pillar_exact", compound, j.d.Targets, id)
}

// Ask implements runner.Asker.
func (j *Jobs) Ask(ctx context.Context, a runner.Ask) (runner.Answers, error) {
	if why := j.unavailable(a.TgtType, a.Tgt); why != "" {
		return runner.Answers{Refused: why}, nil
	}
	args := a.Args
	if len(a.Kwargs) > 0 {
		args = append(slices.Clip(args), append(value.Map{{Key: "__kwarg__", Value: true}},
			a.Kwargs...))
	}
	var held memory.Answer
	opts := gather.Options{Timeout: a.Timeout, GatherJobTimeout: a.Gather, SyndicWait: j.d.SyndicWait,
		Hold: held.Keep}
	if opts.Timeout <= 0 {
		opts.Timeout = j.d.Timeout
	}
	if opts.GatherJobTimeout <= 0 {
		opts.GatherJobTimeout = j.d.GatherJobTimeout
	}
	out := runner.Answers{Returned: make(map[string]runner.Answer)}
	summary, err := gather.Run(ctx, j, gather.Publish{
		Tgt: a.Tgt, TgtType: a.TgtType, Fun: a.Fun, Arg: args, Ret: a.Ret, JID: a.JID, User: a.User,
	}, opts, func(id string, ret gather.Return) {
		v, err := value.Unpack(ret.Return)
		if err != nil {
			v = nil
		}
		out.Returned[id] = runner.Answer{Return: v, Retcode: ret.Code()}
	})
	out.JID, out.Minions, out.Incomplete = summary.JID, summary.Minions, summary.Incomplete
	if len(summary.Minions) > 0 || opts.SyndicWait > 0 { // else nothing was sent
		out.Silent, out.NoReturn = summary.Silent(), gather.NoReturn(summary.JID)
	}
	return out, err
}

// Watch implements runner.Watcher.
func (j *Jobs) Watch(ctx context.Context, prefix string) (<-chan runner.Event, []string, error) {
	sub, err := j.d.Mesh.Subscribe(ctx, prefix)
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
	return out, ids(sub.Unconfirmed()), nil
}

// ids turns node names into the ids that operators know.
func ids(nodes []string) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i], _, _ = strings.Cut(n, "/")
	}
	return out
}

// SaveRun implements runner.Store. As with Salt, a job that is stored under the id keeps its load.
func (j *Jobs) SaveRun(ctx context.Context, jid string, load value.Map, id string,
	ret value.Map) error {
	packed, err := value.Pack(ret)
	if err != nil {
		return fmt.Errorf("pack result of job %s: %w", jid, err)
	}
	if kwargs := confirmed(ctx, load.String("user"), nil); kwargs != nil {
		load = append(slices.Clip(load), value.Pair{Key: "kwargs", Value: kwargs})
	}
	if _, err = j.d.Jobs.SaveReturn(ctx, jid, id, jobcache.Return{Return: packed}, load); err != nil {
		return err
	}
	if j.d.Keep != nil {
		whole, err := value.Pack(value.Map{{Key: "id", Value: id}, {Key: "tgt", Value: id},
			{Key: "jid", Value: jid}, {Key: "return", Value: ret},
			{Key: "fun", Value: load.String("fun")}, {Key: "user", Value: load.String("user")}})
		if err != nil {
			return fmt.Errorf("pack result of job %s: %w", jid, err)
		}
		kept, err := value.UnpackRawMap(whole)
		if err != nil {
			return fmt.Errorf("pack result of job %s: %w", jid, err)
		}
		j.d.Keep(jid, kept, "")
	}
	return nil
}
