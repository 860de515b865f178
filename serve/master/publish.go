package master

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/target"
	"clustermaster/serve/acl"
	"clustermaster/serve/traces"
	"clustermaster/value"
	"clustermaster/wire"
)

// PublishRequest is an operator's job.
type PublishRequest struct {
	Tgt     any // text, []string or []any
	TgtType string
	Fun     any   // text, or a list for several functions
	Arg     []any // keyword arguments are the last map, with __kwarg__
	Ret     string
	JID     string // "": a new one
	User    string
	Kwargs  value.Map
	Timeout time.Duration // "to"; 0 leaves it out
	Rights  *acl.Rights   // User's rights; nil: all
	Also    []string      // ids of others that the job is for and that the caller reaches
	// the request as received, for events and the job cache; nil: it is made from the other fields
	Load value.Map

	ofMinion bool // Tgt is a minion's: resolving it has lower limits and needs a turn
}

// noJID is Published.Error for an invalid job id.
const noJID = "Master failed to assign jid"

// Published is the result of a PublishRequest.
type Published struct {
	JID     string
	Minions []string
	Missing []string
	Error   string // why nothing was sent; Salt's text
	// Incomplete is not empty if unreadable grains or pillars may have hidden minions. It says how
	// many were unreadable.
	Incomplete string
}

// forwarded are the keyword options of a publish request that are sent to minions, in Salt's order.
var forwarded = []string{"ret_config", "metadata", "module_executors", "executor_opts",
	"ret_kwargs"}

// settle is how long after a loss a job waits to be sent. In that time the balancer closes the
// sessions of the dead master, so that no return is sent to it.
const settle = 2500 * time.Millisecond

// Publish sends a job to the subscribers of all masters. When it returns, the job is stored, every
// reachable master sends the job's events here, and every reachable master has queued the job for
// its subscribers. A target without minions is no error: see Published.Error.
func (m *Master) Publish(ctx context.Context, r PublishRequest) (Published, error) {
	if r.TgtType == "" {
		r.TgtType = "glob"
	}
	traced := m.deps.Traces.Publish(ctx, r.JID, r.User, r.Fun, r.TgtType)
	done, err := m.publish(ctx, r, traced)
	traced.Published(err == nil && done.Error == "")
	return done, err
}

func (m *Master) publish(ctx context.Context, r PublishRequest,
	traced *traces.Publishing) (Published, error) {
	if r.Arg == nil {
		r.Arg = []any{}
	}
	if r.JID != "" && !validJID(r.JID) {
		return Published{Error: noJID}, nil
	}
	if cache := m.opts.ExtJobCache; cache != "" && r.Load == nil { // else the client did so
		r.Ret = strings.TrimPrefix(r.Ret+","+cache, ",")
	}
	r.TgtType, r.Tgt = target.ForMinions(r.TgtType, r.Tgt, m.deps.Targets)
	delimiter := r.Kwargs.String("delimiter")
	found, err := m.resolve(ctx, r, delimiter)
	if err != nil {
		return Published{}, fmt.Errorf("resolve target: %w", err)
	}
	if found.Incomplete != "" {
		m.log.Warn("a target was resolved without all minions' data", "tgt", textual(r.Tgt),
			"tgt_type", r.TgtType, "covered", found.Incomplete)
	}
	traced.Resolved(len(found.Minions), len(found.Missing), found.Incomplete)
	where, err := m.authorized(ctx, r, found.Minions)
	if where == acl.Nowhere || err != nil {
		traced.Refused()
		return Published{Error: acl.NotAuthorized}, err
	}
	if where == acl.Here {
		if found, err = m.confined(ctx, r, delimiter, found); err != nil {
			return Published{}, err
		}
	}
	traced.Authorized(len(found.Minions) + len(r.Also))
	if len(found.Minions)+len(r.Also) == 0 && (where == acl.Here || !m.opts.OrderMasters) {
		return Published{Missing: found.Missing, Incomplete: found.Incomplete,
			Error: "Master could not resolve minions for target " + value.Str(textual(r.Tgt))}, nil
	}
	passed := r.JID != ""
	if !passed {
		r.JID = m.NewJID()
	}
	traced.Named(r.JID)
	sent := r
	// send exactly the ids that were checked, as minions can't interpret these differently
	if where == acl.Here {
		sent.TgtType, sent.Tgt, delimiter = "list", found.Minions, ""
	}

	// A master that can't confirm is lost from now on, and so are the minions behind it.
	sub, err := m.deps.Mesh.Subscribe(ctx, "salt/job/"+r.JID+"/ret/")
	if err != nil {
		return Published{}, fmt.Errorf("subscribe to job %s: %w", r.JID, err)
	}
	traced.Subscribed(sub.Unconfirmed())
	job := &job{
		m: m, traced: traced, jid: r.JID, load: m.publishLoad(sent, delimiter), sub: sub,
		tgtType: sent.TgtType, below: m.opts.OrderMasters && where != acl.Here,
		expected: found.Minions, waiting: setOf(found.Minions),
	}
	all := found
	all.Minions = append(slices.Clip(all.Minions), r.Also...)
	all.Missing = slices.DeleteFunc(slices.Clone(all.Missing),
		func(id string) bool { return slices.Contains(r.Also, id) })
	if job.nocache, err = m.marked(ctx, r, passed); err == nil {
		err = m.announce(ctx, r, all, job.nocache)
	}
	if err != nil {
		sub.Close()
		return Published{}, err
	}
	traced.Stored()
	if err := m.settled(ctx); err != nil {
		sub.Close()
		return Published{}, err
	}
	traced.Settled()
	if m.deps.Commits != nil {
		m.deps.Commits.Begin(ctx, textual(r.Fun), r.JID, found.Minions)
	}
	m.deps.Bus.Fire("salt/job/"+r.JID+"/publish", job.load)
	if err := job.send(ctx, job.load, sent.TgtType, found.Minions); err != nil {
		sub.Close()
		return Published{}, err
	}
	m.metrics.published.Inc()
	m.track(job)
	if err := m.settle(); err != nil {
		return Published{}, err
	}
	return Published{JID: r.JID, Minions: all.Minions, Missing: all.Missing,
		Incomplete: found.Incomplete}, nil
}

// resolve returns the minions of a job's target.
func (m *Master) resolve(ctx context.Context, r PublishRequest, delimiter string) (target.Result,
	error) {
	if !r.ofMinion {
		return target.Match(ctx, r.TgtType, r.Tgt, delimiter, m.deps.Targets, true)
	}
	done, err := m.resolving.enter(ctx)
	if err != nil {
		return target.Result{}, err
	}
	defer done()
	return target.MatchMinions(ctx, r.TgtType, r.Tgt, m.deps.Targets, true)
}

// requestLoad returns the request as it goes to events and the job cache, before secrets are
// removed.
func requestLoad(r PublishRequest) value.Map {
	if r.Load != nil {
		return slices.Clone(r.Load).Set("kwargs", orEmpty(r.Kwargs)).Set("jid", r.JID).Set("user",
			r.User)
	}
	return value.Map{
		{Key: "cmd", Value: "publish"}, {Key: "tgt", Value: textual(r.Tgt)},
		{Key: "fun", Value: textual(r.Fun)}, {Key: "arg", Value: r.Arg},
		{Key: "tgt_type", Value: r.TgtType}, {Key: "ret", Value: r.Ret}, {Key: "jid", Value: r.JID},
		{Key: "kwargs", Value: orEmpty(r.Kwargs)},
		{Key: "user", Value: r.User},
	}
}

// publishLoad returns the load for the minions.
func (m *Master) publishLoad(r PublishRequest, delimiter string) value.Map {
	load := value.Map{
		{Key: "fun", Value: textual(r.Fun)}, {Key: "arg", Value: r.Arg},
		{Key: "tgt", Value: textual(r.Tgt)},
		{Key: "jid", Value: r.JID}, {Key: "ret", Value: r.Ret},
	}
	masterID := m.opts.MasterID
	if masterID != "" {
		load = load.Set("master_id", masterID)
	}
	if id, ok := r.Kwargs.Get("master_id"); ok {
		load = load.Set("master_id", id)
	}
	if delimiter != "" && delimiter != value.Delimiter {
		load = load.Set("delimiter", delimiter)
	}
	if id, ok := r.Kwargs.Get("id"); ok {
		load = load.Set("id", id)
	}
	load = load.Set("tgt_type", r.TgtType)
	if r.Timeout > 0 {
		load = load.Set("to", int64(r.Timeout/time.Second))
	}
	for _, key := range forwarded {
		if v, ok := r.Kwargs.Get(key); ok {
			load = load.Set(key, v)
		}
	}
	if v, _ := r.Kwargs.Get("start_event"); value.Truth(v) {
		load = load.Set("start_event", true)
	}
	if r.User != "" {
		load = load.Set("user", r.User)
	}
	if m.opts.OrderMasters { // a syndic orders only with its user's rights
		list := []any{}
		if r.Rights != nil {
			list = append(list, r.Rights.List()...)
		}
		load = load.Set("auth_list", list)
	}
	return load
}

// marked records that a job's returns are not to be stored if its publisher says so (nocache), and
// reports whether they are not: a given jid may have been marked before.
func (m *Master) marked(ctx context.Context, r PublishRequest, passed bool) (bool, error) {
	if v, _ := r.Kwargs.Get("nocache"); value.Truth(v) {
		return true, m.deps.Jobs.SaveNoCache(ctx, r.JID)
	}
	if !passed {
		return false, nil
	}
	return m.unkept(ctx, r.JID)
}

// announce stores the job and fires its two events.
func (m *Master) announce(ctx context.Context, r PublishRequest, found target.Result,
	nocache bool) error {
	minions := textual(found.Minions)
	m.deps.Bus.Fire("salt/job/"+r.JID+"/new", value.Map{
		{Key: "jid", Value: r.JID}, {Key: "tgt_type", Value: r.TgtType},
		{Key: "tgt", Value: textual(r.Tgt)}, {Key: "user", Value: r.User},
		{Key: "fun", Value: textual(r.Fun)}, {Key: "arg", Value: r.Arg},
		{Key: "minions", Value: minions}, {Key: "missing", Value: textual(found.Missing)},
	})
	load := redact(requestLoad(r))
	if err := m.deps.Jobs.SaveLoad(ctx, r.JID, load, found.Minions); err != nil {
		return fmt.Errorf("save job %s: %w", r.JID, err)
	}
	if r.Load != nil && m.deps.OnDisk != nil { // the job came through port 4506
		m.deps.OnDisk.Keep(r.JID, load, found.Minions, nocache)
	}
	if m.deps.Kept != nil {
		m.deps.Kept.Job(r.JID, load, found.Minions)
	}
	m.known.add(r.JID, knownJob{nocache: nocache})
	return nil
}

// settled waits until the last loss of a master is long enough ago. (A subscriber that disconnected
// alone comes back without help; the publication's hold covers it.)
func (m *Master) settled(ctx context.Context) error {
	var last time.Time
	for _, loss := range m.deps.Mesh.Losses() {
		if loss.At.After(last) {
			last = loss.At
		}
	}
	wait := time.Until(last.Add(settle))
	if !m.opts.PublishRetry || wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// topics returns the subscriptions that a publication goes to with zmq_filtering; else nil.
func (m *Master) topics(tgtType string, tgt any, matched []string) []string {
	if !m.opts.ZmqFiltering {
		return nil
	}
	ids := matched
	switch tgtType {
	case "list":
		if named := names(tgt); len(named) > 0 {
			ids = named
		}
	case "glob", "pcre":
	default:
		return []string{wire.BroadcastTopic}
	}
	if len(ids) == 0 {
		return []string{wire.BroadcastTopic}
	}
	out := make([]string, 0, len(ids)+1)
	for _, id := range ids {
		out = append(out, wire.Topic(id))
	}
	if m.opts.OrderMasters {
		out = append(out, wire.SyndicTopic)
	}
	return out
}

// names returns the ids of a list target.
func names(tgt any) []string {
	switch t := tgt.(type) {
	case []string:
		return t
	case []any:
		out := make([]string, 0, len(t))
		for _, v := range t {
			if s, ok := v.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// textual converts a []string into a value that packs as a list of texts, never as nil.
func textual(v any) any {
	switch t := v.(type) {
	case []string:
		out := make([]any, len(t))
		for i := range t {
			out[i] = t[i]
		}
		return out
	case nil:
		return ""
	}
	return v
}

func setOf(ids []string) map[string]struct{} {
	out := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		out[id] = struct{}{}
	}
	return out
}

func orEmpty(m value.Map) value.Map {
	if m == nil {
		return value.Map{}
	}
	return m
}

// secretKeys never reach an event, a log or a disk.
var secretKeys = []string{"key", "password", "token", "auth_list"}

// redact returns load without the credentials in it and in its kwargs.
func redact(load value.Map) value.Map {
	out := load.Without(secretKeys...)
	for i, p := range out {
		if inner, ok := p.Value.(value.Map); ok && p.Key == "kwargs" {
			out[i].Value = inner.Without(secretKeys...)
		}
	}
	return out
}

// seal encrypts and signs a load with the active AES key.
func (m *Master) seal(load value.Map) (payload []byte, epoch uint64, err error) {
	shared := m.keys.common()
	if len(shared.aes) == 0 {
		return nil, 0, fmt.Errorf("publish: %w", errNoKey)
	}
	var key *wire.PrivateKey
	if m.opts.SignPubMessages {
		key = m.deps.Cluster.ClusterKey()
	}
	payload, err = wire.Publication(shared.aes[0], key, m.opts.PublishSigningAlgorithm, load)
	return payload, shared.of.AES[0].Epoch, err
}

// losses lists the known losses of masters and of this master's subscribers.
func (m *Master) losses() []time.Time {
	out := m.deps.Subscribers.Losses()
	for _, l := range m.deps.Mesh.Losses() {
		out = append(out, l.At)
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}
