package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/salt/target"
	"clustermaster/serve/acl"
	"clustermaster/serve/origin"
	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// Bounds of a job that a minion orders.
const (
	maxPeerWait = 60 * time.Second       // of minion_publish, whatever it requests
	peerPoll    = 200 * time.Millisecond // between looks for returns

	maxPeerFunctions = 100
)

// peerUser is the user in events and jobs that minions order, as in Salt.
const peerUser = "root"

var errUnknownPeerJob = errors.New("no job that a minion ordered")

// peerPublish is a job that a minion ordered and may order.
type peerPublish struct {
	PublishRequest
	full bool
}

// minionPub publishes for a minion and answers at once.
func (m *Master) minionPub(ctx context.Context, c *call) (any, error) {
	_, done, err := m.publishForPeer(ctx, c)
	switch {
	case err != nil || done == nil:
		return value.Map{}, err
	case done.Error != "":
		return value.Map{{Key: "jid", Value: int64(0)}, {Key: "minions", Value: []any{}}}, nil
	}
	return value.Map{{Key: "jid", Value: done.JID},
		{Key: "minions", Value: textual(done.Minions)}}, nil
}

// minionPublish publishes for a minion and waits for the returns. In Salt 3008 it always fails.
func (m *Master) minionPublish(ctx context.Context, c *call) (any, error) {
	wait, ok := peerTimeout(c)
	if !ok {
		return value.Map{}, nil
	}
	p, done, err := m.publishForPeer(ctx, c)
	if err != nil || done == nil || done.Error != "" {
		return value.Map{}, err
	}
	if wait <= 0 {
		wait = m.opts.Timeout
	}
	ctx, stop := context.WithTimeout(ctx, min(wait, maxPeerWait))
	defer stop()
	tick := time.NewTicker(peerPoll)
	defer tick.Stop()
	for waiting := true; waiting; {
		got, err := m.deps.Jobs.Returned(ctx, done.JID)
		if err == nil && within(done.Minions, got) {
			break
		}
		select {
		case <-ctx.Done():
			waiting = false
		case <-tick.C:
		}
	}
	returns, err := m.peerReturns(context.WithoutCancel(ctx), c, done.JID)
	if errors.Is(err, errUnacknowledged) { // or the minion asks again, and the job runs twice
		return nil, errors.New(err.Error())
	}
	if err != nil {
		return nil, err
	}
	if p.full {
		return returns.Set("__jid__", done.JID), nil
	}
	out := make(value.Map, len(returns))
	for i, r := range returns {
		v, _ := r.Value.(value.Map).Get("ret")
		out[i] = value.Pair{Key: r.Key, Value: v}
	}
	return out, nil
}

// peerTimeout reads how long minion_publish waits, in seconds; 0 is the default. Salt's int() takes
// fractions as numbers, and not as text. minion_pub has the field too, and ignores it.
func peerTimeout(c *call) (wait time.Duration, ok bool) {
	for _, name := range []string{"tmo", "timeout"} {
		raw, given := c.Load.Get(name)
		if !given || raw.IsNil() {
			continue
		}
		v, err := raw.Unpack()
		seconds, isNumber := v.(float64)
		switch v := v.(type) {
		case int64:
			seconds, isNumber = float64(v), true
		case string:
			n, parseErr := strconv.Atoi(strings.TrimSpace(v))
			seconds, isNumber = float64(n), parseErr == nil
		}
		if err != nil || !isNumber {
			return 0, false
		}
		wait = time.Duration(min(max(seconds, 0), maxPeerWait.Seconds())) * time.Second
	}
	return wait, true
}

// pubRet answers the minion that ordered a job with the returns so far.
func (m *Master) pubRet(ctx context.Context, c *call) (any, error) {
	jid := c.Load.String("jid")
	if jid == "" || c.ID == "" {
		return value.Map{}, nil
	}
	owner, found, err := m.deps.Jobs.PeerOf(ctx, jid)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("job %s: %w", jid, errUnknownPeerJob)
	}
	if owner != c.ID {
		return value.Map{}, nil
	}
	return m.peerReturns(ctx, c, jid)
}

// peerReturns reads what a minion's job returned, as far as there is memory for it.
func (m *Master) peerReturns(ctx context.Context, c *call, jid string) (value.Map, error) {
	returns := make(map[string]jobcache.Return)
	err := m.deps.Jobs.EachReturn(ctx, jid, func(id string, r jobcache.Return) error {
		returns[id] = r
		return c.hold(r.Size())
	})
	if errors.Is(err, errNoMemory) {
		m.refused.note("memory", c.ID, c.remote)
	}
	if err != nil {
		return nil, fmt.Errorf("read the returns of job %s for %q: %w", jid, c.ID, err)
	}
	out := value.Map{}
	for _, id := range sortedIDs(returns) {
		v := value.Map{{Key: "ret", Value: returns[id].Return}}
		if returns[id].Out != "" {
			v = append(v, value.Pair{Key: "out", Value: returns[id].Out})
		}
		out = append(out, value.Pair{Key: id, Value: v})
	}
	return out, nil
}

func sortedIDs[V any](m map[string]V) []string {
	ids := make([]string, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// minionRunner runs a runner function for a minion if peer_run allows it.
func (m *Master) minionRunner(ctx context.Context, c *call) (any, error) {
	fun := c.Load.String("fun")
	rawArg, hasArg := c.Load.Get("arg")
	if m.deps.Runner == nil || fun == "" || !hasArg || c.ID == "" ||
		!allowedBy(m.opts.PeerRun, c.ID, fun) {
		return value.Map{}, nil
	}
	list, noParse, err := peerArgs(rawArg, c)
	if err != nil {
		return nil, err
	}
	args, kwargs := parseInput(list, noParse)
	ctx = origin.With(ctx, origin.Origin{User: c.ID, From: "minion", Order: fun, Automatic: true})
	v, err := m.deps.Runner(ctx, fun, args, kwargs)
	if err != nil && v != nil { // the minion gets what salt-run would print
		m.log.Warn("runner that a minion asked for failed", "minion", c.ID, "fun", fun, "err", err)
		return v, nil
	}
	return v, err
}

// allowedBy looks up a function in peer or peer_run: regular expressions on ids to lists of those
// on functions.
func allowedBy(acl value.Map, id, fun string) bool {
	for _, p := range acl {
		who, _ := p.Key.(string)
		list, ok := p.Value.([]any)
		if !ok || !target.MatchStart(who, id) {
			continue
		}
		for _, f := range list {
			if pattern, ok := f.(string); ok && target.MatchStart(pattern, fun) {
				return true
			}
		}
	}
	return false
}

// peerRequest reads and checks an order to publish. Not ok: the minion may not publish it, or the
// order is incomplete. Every function of several must be allowed, and none may publish again. In
// Salt one allowed function lets the others pass.
func (m *Master) peerRequest(ctx context.Context, c *call) (p peerPublish, ok bool, err error) {
	rawArg, hasArg := c.Load.Get("arg")
	rawTgt, hasTgt := c.Load.Get("tgt")
	_, hasRet := c.Load.Get("ret")
	fun := c.Load.String("fun")
	if fun == "" || !hasArg || !hasTgt || !hasRet || c.ID == "" || len(m.opts.Peer) == 0 {
		return p, false, nil
	}
	list, noParse, err := peerArgs(rawArg, c)
	if err != nil {
		return p, false, err
	}
	funs := strings.Split(fun, ",")
	if len(funs) > maxPeerFunctions {
		m.refused.note("peer", c.ID, c.remote)
		return p, false, nil
	}
	byTarget := false // some function is allowed on some minions at most
	for _, f := range funs {
		everywhere := allowedBy(m.opts.Peer, c.ID, f)
		// Rights would include find_job; peers have only what peer says.
		if strings.HasPrefix(f, "publish.") || !everywhere && f == "saltutil.find_job" {
			m.refused.note("peer", c.ID, c.remote)
			return p, false, nil
		}
		byTarget = byTarget || !everywhere
	}
	tgt, err := rawTgt.Unpack()
	if err != nil {
		return p, false, fmt.Errorf("decode target: %w", err)
	}
	p.Tgt, p.TgtType, p.Ret, p.User = tgt, c.Load.String("tgt_type"), c.Load.String("ret"), peerUser
	p.Kwargs, p.ofMinion = value.Map{{Key: "id", Value: c.ID}}, true
	if strings.HasPrefix(p.TgtType, "node") {
		p.TgtType = "nodegroup"
		if name, isText := tgt.(string); !isText || !has(m.nodegroups(), name) {
			return p, false, nil
		}
	}
	may, err := m.peerTarget(ctx, p.TgtType, tgt)
	if errors.Is(err, target.ErrTooCostly) || errors.Is(err, errBusyTargets) ||
		errors.Is(err, errUnreadPillars) {
		return p, false, err
	}
	if err != nil || !may {
		m.refused.note("peer", c.ID, c.remote)
		return p, false, err
	}
	if len(funs) > 1 {
		p.Fun, p.Arg = textual(funs), splitArgs(list)
	} else {
		p.Fun, p.Arg = fun, conditioned(parseInput(list, noParse))
	}
	if byTarget {
		may, err := m.peerRights(ctx, c.ID, funs, &p)
		if errors.Is(err, target.ErrTooCostly) || errors.Is(err, errBusyTargets) {
			return p, false, err
		}
		if err != nil || !may {
			m.refused.note("peer", c.ID, c.remote)
			return p, false, err
		}
	}
	p.full = c.Load.String("form") == "full"
	return p, true, nil
}

// peerRights reports whether the entries of peer that name targets (a map from a compound target to
// functions) allow an order. It then goes to the minions that certainly match, as with a user's
// rights.
func (m *Master) peerRights(ctx context.Context, id string, funs []string, p *peerPublish) (bool,
	error) {
	var list []any
	for _, rule := range m.opts.Peer {
		who, _ := rule.Key.(string)
		if entries, ok := rule.Value.([]any); ok && target.MatchStart(who, id) {
			list = append(list, entries...)
		}
	}
	limited := func(entry any) bool { _, is := entry.(value.Map); return is }
	if !slices.ContainsFunc(list, limited) {
		return false, nil
	}
	done, err := m.resolving.enter(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	found, err := target.MatchMinions(ctx, cmp.Or(p.TgtType, "glob"), p.Tgt, m.deps.Targets, true)
	if err != nil {
		return false, err
	}
	rights := acl.FromList(list)
	order := acl.Order{Funs: funs, Several: len(funs) > 1, Args: p.Arg, Minions: found.Minions}
	where, err := rights.Allow(ctx, order, m.certain)
	if where == acl.Here {
		p.Rights = rights
	}
	return where != acl.Nowhere, err
}

// errUnreadPillars refuses a target for now: without all minions' pillar nobody can judge it.
var errUnreadPillars = errors.New("not all minions' pillar could be read; retry")

// peerTarget reports whether a target's patterns on pillar find no more minions than exact values
// do: a minion must not guess another's pillar with them.
func (m *Master) peerTarget(ctx context.Context, tgtType string, tgt any) (bool, error) {
	exact, is := exactPillar(tgtType)
	if !is {
		return true, nil
	}
	done, err := m.resolving.enter(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	all, err := target.MatchMinions(ctx, tgtType, tgt, m.deps.Targets, true)
	if err != nil {
		return false, err
	}
	few, err := target.MatchMinions(ctx, exact, tgt, m.deps.Targets, true)
	if err != nil {
		return false, err
	}
	if all.Incomplete != "" || few.Incomplete != "" {
		return false, errUnreadPillars
	}
	return within(all.Minions, few.Minions), nil
}

// within reports whether all ids are among others.
func within(ids, others []string) bool {
	set := setOf(others)
	return !slices.ContainsFunc(ids, func(id string) bool { _, is := set[id]; return !is })
}

// publishForPeer publishes a minion's order. It returns nil if nothing was published, see
// peerRequest, or because the target takes too much work.
func (m *Master) publishForPeer(ctx context.Context, c *call) (peerPublish, *Published, error) {
	p, done, err := m.publishAsPeer(ctx, c)
	switch {
	case errors.Is(err, errBusyTargets):
		m.refused.note("busy_targets", c.ID, c.remote)
		return p, nil, err
	case errors.Is(err, target.ErrTooCostly):
		m.refused.note("target_cost", c.ID, c.remote)
		return p, nil, nil
	}
	return p, done, err
}

// publishAsPeer is publishForPeer with errors about the target. Before it sends, it notes which
// minion ordered the job, so that pub_ret works on another master.
func (m *Master) publishAsPeer(ctx context.Context, c *call) (peerPublish, *Published, error) {
	p, ok, err := m.peerRequest(ctx, c)
	if err != nil || !ok {
		return p, nil, err
	}
	p.JID = m.NewJID()
	if err := m.deps.Jobs.SavePeer(ctx, p.JID, c.ID); err != nil {
		return p, nil, fmt.Errorf("%w: save who ordered job %s: %w", errUnacknowledged, p.JID, err)
	}
	done, err := m.Publish(ctx, p.PublishRequest)
	return p, &done, err
}

func peerArgs(raw value.Raw, c *call) (list []any, noParse []string, err error) {
	v, err := raw.Unpack()
	if err != nil {
		return nil, nil, fmt.Errorf("decode arguments: %w", err)
	}
	switch v := v.(type) {
	case []any:
		list = v
	case nil:
	default:
		list = []any{v}
	}
	if raw, ok := c.Load.Get("no_parse"); ok {
		if v, err := raw.Unpack(); err == nil {
			noParse = names(v)
		}
	}
	return list, noParse, nil
}

// parseInput reads arguments as the command line does: a text may be a keyword argument, and is
// YAML (salt.utils.args.parse_input).
func parseInput(list []any, noParse []string) (args []any, kwargs value.Map) {
	at := map[string]int{} // positions in kwargs
	set := func(name string, v any) {
		if i, ok := at[name]; ok {
			kwargs[i].Value = v
			return
		}
		at[name] = len(kwargs)
		kwargs = append(kwargs, value.Pair{Key: name, Value: v})
	}
	for _, v := range list {
		switch v := v.(type) {
		case string:
			a, k := yaml11.ParseArgs([]string{v}, noParse...)
			args = append(args, a...)
			for _, p := range k {
				set(p.Key.(string), p.Value)
			}
		case value.Map:
			if marked, _ := v.Get("__kwarg__"); marked != true {
				args = append(args, v)
				continue
			}
			for _, p := range v.Without("__kwarg__") {
				name, _ := p.Key.(string)
				if text, ok := p.Value.(string); ok && !slices.Contains(noParse, name) {
					p.Value = yaml11.ParseArg(text)
				}
				set(name, p.Value)
			}
		default:
			args = append(args, v)
		}
	}
	return args, kwargs
}

// conditioned joins arguments into the list that is sent.
func conditioned(args []any, kwargs value.Map) []any {
	out := append([]any{}, args...)
	if len(kwargs) > 0 {
		out = append(out, append(value.Map{{Key: "__kwarg__", Value: true}}, kwargs...))
	}
	return out
}

// splitArgs gives each of several functions its arguments, the words of one text.
func splitArgs(list []any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		s, _ := v.(string)
		words := []any{}
		for _, w := range value.Fields(s) {
			words = append(words, w)
		}
		out[i] = words
	}
	return out
}
