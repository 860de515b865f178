package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"clustermaster/salt/target"
	"clustermaster/store/allotment"
	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/wire"
)

// maxJID bounds the jid of a return, in bytes.
const maxJID = 128

// minionReturn stores a minion's return and fires its event. The load stays encoded, because a
// return may be large and is only passed on.
func (m *Master) minionReturn(ctx context.Context, c *call) (any, error) {
	if refused, err := m.unsigned(c); refused || err != nil {
		return false, err
	}
	if _, given := c.Load.Get("resource_id"); given && c.Load.String("resource_id") != c.ID {
		// Salt 3008 would attribute the return to the resource. This master knows no resources, so
		// it could be of any.
		m.refused.note("resource_return", c.ID, c.remote)
		return false, nil
	}
	if err := m.space(c); err != nil {
		m.metrics.returns.WithLabelValues("failed").Inc()
		return nil, err
	}
	if !m.mayBegin(c) {
		m.refused.note("quota_jobs", c.ID, c.remote)
		return false, nil
	}
	if raw, _ := c.Load.Get("fun"); m.deps.Commits != nil && c.ID != "" {
		if fun, err := raw.Unpack(); err == nil {
			m.deps.Commits.End(ctx, fun, c.Load.String("jid"), c.ID)
		}
	}
	if err := m.takeReturn(ctx, c, c.ID, c.Load); err != nil {
		return false, m.quotaOf(c, "quota_jobs", err)
	}
	return nil, nil
}

// quotaOf counts what is not stored because one minion, or all of them, have used up their share,
// and returns nil then. It returns other errors.
func (m *Master) quotaOf(c *call, reason string, err error) error {
	switch {
	case errors.Is(err, allotment.ErrOne):
		m.refused.note(reason+"_stored", c.ID, c.remote)
	case errors.Is(err, allotment.ErrAll):
		m.refused.note(reason+"_total", c.ID, c.remote)
	default:
		return err
	}
	return nil
}

// mayBegin counts jobs that a minion begins by returning for them: those without an id, and those
// unknown to this master.
func (m *Master) mayBegin(c *call) bool {
	jid := c.Load.String("jid")
	if _, known := m.known.get(jid); known {
		return true
	}
	return m.ownJobs.take(c.ID, 1, m.steady())
}

// space refuses requests that need more disk space while there is little. The minion gets no reply
// and tries again: here once there is space, or on another master, as this one is not ready
// meanwhile.
func (m *Master) space(c *call) error {
	if m.deps.Disk == nil {
		return nil
	}
	if err := m.deps.Disk.Low(); err != nil {
		m.refused.note("disk", c.ID, c.remote)
		return fmt.Errorf("%w: %w", errUnacknowledged, err)
	}
	return nil
}

// unsigned reports whether the options require a signature that the message lacks or that is wrong.
func (m *Master) unsigned(c *call) (refused bool, err error) {
	if _, ok := c.Load.Get("sig"); !ok {
		if m.opts.RequireMinionSignMessages {
			m.refused.note("unsigned_return", c.ID, c.remote)
			return true, nil
		}
		return false, nil
	}
	if c.key == nil || c.key.Pub == nil {
		return m.opts.DropMessagesSignatureFail, nil
	}
	if _, err := c.VerifyMessage(c.key.Pub, c.env.SigAlgo); err != nil {
		m.refused.note("return_signature", c.ID, c.remote)
		return m.opts.DropMessagesSignatureFail, nil
	}
	return false, nil
}

// takeReturn stores one return of id, for which c may speak. An error is errUnacknowledged or
// allotment.ErrSpent. It drops a malformed return without an error, as in Salt.
func (m *Master) takeReturn(ctx context.Context, c *call, id string, load value.RawMap) error {
	val, hasReturn := load.Get("return")
	jid := load.String("jid")
	if !hasReturn || !wire.ValidID(id) || !validJID(jid) {
		m.metrics.returns.WithLabelValues("dropped").Inc()
		return nil
	}
	kept := m.opts.JobCache && m.opts.ExtJobCache == "" && jid != "nocache"
	if jid == "req" {
		var err error
		if jid, load, err = m.spontaneous(id, load); err == nil {
			err = m.markSpontaneous(ctx, jid, id, load, kept)
		}
		if errors.Is(err, allotment.ErrSpent) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errUnacknowledged, err)
		}
	}
	traced := m.deps.Traces.Return(jid, id, load)
	defer traced.End()
	if kept {
		result, err := m.saveReturn(ctx, jid, id, val, load)
		traced.Stored(result, err)
		if err != nil {
			if errors.Is(err, allotment.ErrSpent) {
				return err
			}
			m.metrics.returns.WithLabelValues("failed").Inc()
			return fmt.Errorf("%w: %w", errUnacknowledged, err)
		}
		m.metrics.returns.WithLabelValues(result).Inc()
	} else {
		m.countStates(load)
	}
	// Fire after storing, so that a reader of the event finds the return in the job cache of every
	// master.
	m.deps.Bus.FireRawMap("salt/job/"+jid+"/ret/"+id, load)
	m.failedStates(c, jid, id, load)
	return nil
}

// validJID accepts any text that can't break event tags, because Salt accepts any text as a jid.
func validJID(jid string) bool {
	if jid == "" || len(jid) > maxJID {
		return false
	}
	return !strings.ContainsFunc(jid, func(r rune) bool {
		return r < ' ' || r == '/' || r == '\\' ||
			r == 0x7f
	})
}

// spontaneous gives a return without a job (from a schedule or a start-up state) a jid and the
// fields that jobs have.
func (m *Master) spontaneous(id string, load value.RawMap) (string, value.RawMap, error) {
	jid := m.NewJID()
	arg, ok := load.Get("arg")
	if !ok {
		arg, _ = load.Get("fun_args")
	}
	load = load.Without("jid", "arg", "tgt", "tgt_type").Append("arg", arg)
	for _, field := range [][2]string{{"tgt_type", "glob"}, {"tgt", id}, {"jid", jid}} {
		packed, err := value.Pack(field[1])
		if err != nil {
			return "", nil, fmt.Errorf("pack %s: %w", field[0], err)
		}
		load = load.Append(field[0], packed)
	}
	return jid, load, nil
}

// markSpontaneous stores the account of a return without a job if saveReturn won't: with nocache,
// and if no returns are stored.
func (m *Master) markSpontaneous(ctx context.Context, jid, id string, load value.RawMap,
	kept bool) error {
	nocache, _ := load.Get("nocache")
	if kept && !isTrue(nocache) {
		return nil
	}
	account, err := accountOf(jid, load)
	if err != nil {
		return err
	}
	if err := m.deps.Jobs.SaveAccount(ctx, jid, id, account); err != nil {
		return err
	}
	if isTrue(nocache) {
		if err := m.deps.Jobs.SaveNoCache(ctx, jid); err != nil {
			return err
		}
	}
	m.known.add(jid, knownJob{nocache: isTrue(nocache), own: true})
	return nil
}

// accountOf returns what a return itself says about its job.
func accountOf(jid string, load value.RawMap) (value.Map, error) {
	account, err := load.Without("return", "sig").Map()
	if err != nil {
		return nil, fmt.Errorf("decode load of job %s: %w", jid, err)
	}
	return account, nil
}

// unkept reports whether a job's returns are not to be stored (nocache), whichever master published
// it. This master remembers that for the latest jobs.
func (m *Master) unkept(ctx context.Context, jid string) (bool, error) {
	if job, known := m.known.get(jid); known {
		return job.nocache, nil
	}
	return m.deps.Jobs.NoCache(ctx, jid)
}

// saveReturn stores a return, with its own account of the job unless the job is known to be stored.
// The result is saved, repeated or nocache.
func (m *Master) saveReturn(ctx context.Context, jid, id string, val value.Raw,
	load value.RawMap) (result string, err error) {
	end := ""
	if m.opts.StoreEndTime {
		end = wire.JIDTime(wire.JID(m.now()))
	}
	nocache, err := m.unkept(ctx, jid)
	if err == nil && nocache && end != "" {
		err = m.deps.Jobs.SaveEndTime(ctx, jid, end)
	}
	if err != nil {
		return "", fmt.Errorf("save return of %q for job %s: %w", id, jid, err)
	}
	if nocache {
		m.known.add(jid, knownJob{nocache: true, own: true})
		m.countStates(load)
		return "nocache", nil
	}
	var account value.Map
	job, known := m.known.get(jid)
	if !known {
		if account, err = accountOf(jid, load); err != nil {
			return "", err
		}
	}
	retcode, _ := load.Get("retcode")
	success, _ := load.Get("success")
	args, _ := load.Get("fun_args")
	first, err := m.deps.Jobs.SaveReturn(ctx, jid, id, jobcache.Return{
		Return: val, Retcode: retcode, Success: success, FunArgs: args, Out: load.String("out"),
		Stamp: load.String("_stamp"), End: end, Own: !known || job.own,
	}, account)
	if err != nil {
		return "", fmt.Errorf("save return of %q for job %s: %w", id, jid, err)
	}
	m.known.add(jid, knownJob{own: true})
	if m.deps.Kept != nil { // also repeats, whose first acknowledgement was lost
		m.deps.Kept.Return(jid, load, end)
	}
	if !first {
		return "repeated", nil
	}
	m.countStates(load)
	return "saved", nil
}

// failedStates fires an event for each failed state of a state run. The minion chooses the states'
// names, so each tag must be one that the minion may fire.
func (m *Master) failedStates(c *call, jid, id string, load value.RawMap) {
	fun := load.String("fun")
	if fun != "state.sls" && fun != "state.highstate" {
		return
	}
	code, _ := load.Get("retcode")
	if !isTrue(code) {
		return
	}
	val, _ := load.Get("return")
	chunks, err := val.Map()
	if err != nil {
		return
	}
	for _, p := range chunks {
		name, _ := p.Key.(string)
		chunk, ok := p.Value.(value.Map)
		if result, _ := chunk.Get("result"); !ok || result != false {
			continue
		}
		parts := strings.Split(name, "_|-")
		state := parts[0] + "." + parts[len(parts)-1]
		data := append(value.Map(nil), chunk...).Set("retcode", code)
		if !m.mayFire(c, state, data) {
			continue
		}
		m.deps.Bus.Fire(state, data)
		data = data.Set("jid", jid).Set("id", id).Set("success", false).Set("return",
			"Error: "+state).Set("fun", fun).Set("user", load.String("user"))
		m.deps.Bus.Fire("salt/job/"+jid+"/sub/"+id+"/error/"+fun, data)
	}
}

// syndicReturn receives the returns that a syndic gathered from the minions below it.
func (m *Master) syndicReturn(ctx context.Context, c *call) (any, error) {
	if !m.isSyndic(c.ID) {
		m.refused.note("no_syndic", c.ID, c.remote)
		return false, nil
	}
	if refused, err := m.unsigned(c); refused || err != nil {
		return false, err
	}
	if err := m.space(c); err != nil {
		m.metrics.returns.WithLabelValues("failed").Inc()
		return nil, err
	}
	raw, _ := c.Load.Get("load")
	v, err := raw.Unpack()
	if err != nil {
		return nil, nil // not a syndic's load: ignored, as in Salt
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		if load, ok := item.(value.Map); ok {
			if err := m.syndicJob(ctx, c, load); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// syndicJob stores a syndic's part of one job: the job itself, unless it is known, and returns of
// minions below the syndic.
func (m *Master) syndicJob(ctx context.Context, c *call, load value.Map) error {
	jid := load.String("jid")
	returns, isMap := mapOf(load, "return")
	if !isMap || !validJID(jid) || !has(load, "id") {
		return nil
	}
	if nested, ok := mapOf(load, "load"); ok {
		if err := m.syndicAccount(ctx, c, jid, redact(nested)); err != nil {
			return fmt.Errorf("%w: save job %s of a syndic: %w", errUnacknowledged, jid, err)
		}
	}
	for _, p := range returns {
		id, _ := p.Key.(string)
		one, ok := p.Value.(value.Map)
		if !ok {
			continue
		}
		if !m.speaksFor(c, id) {
			m.metrics.returns.WithLabelValues("dropped").Inc()
			m.refused.note("syndic_return", c.ID, c.remote)
			continue
		}
		packed, err := value.Pack(returnBelow(jid, id, load, one))
		if err != nil {
			continue
		}
		rawLoad, err := value.UnpackRawMap(packed)
		if err != nil {
			continue
		}
		if err := m.takeReturn(ctx, c, id, rawLoad); err != nil &&
			m.quotaOf(c, "quota_jobs", err) != nil {
			return err
		}
	}
	return nil
}

// syndicAccount stores a syndic's account of a job, unless this master knows the job.
func (m *Master) syndicAccount(ctx context.Context, c *call, jid string, load value.Map) error {
	if _, known := m.known.get(jid); known {
		return nil
	}
	return m.quotaOf(c, "quota_jobs", m.deps.Jobs.SaveAccount(ctx, jid, "", load))
}

// returnBelow returns the return of one minion below a syndic in the form in which the minion would
// have sent it.
func returnBelow(jid, id string, load, one value.Map) value.Map {
	ofJob := []string{"master_id", "fun", "fun_args", "out", "sig"}
	out := append(make(value.Map, 0, len(one)+2+len(ofJob)), value.Pair{Key: "jid", Value: jid},
		value.Pair{Key: "id", Value: id})
	for _, field := range one {
		key, isText := field.Key.(string)
		if isText && key != "jid" && key != "id" &&
			!(slices.Contains(ofJob, key) && has(load, key)) {
			out = append(out, field)
		}
	}
	for _, key := range ofJob {
		if v, ok := load.Get(key); ok {
			out = append(out, value.Pair{Key: key, Value: v})
		}
	}
	return out
}

// isSyndic reports whether an id is that of a syndic, which speaks for the minions below it: with
// order_masters those that the option syndics names.
func (m *Master) isSyndic(id string) bool {
	return m.opts.OrderMasters && anyGlob(m.opts.Syndics, id)
}

// anyGlob reports whether one of some globs matches a text.
func anyGlob(globs []string, text string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return target.Glob(g, text) })
}

// speaksFor reports whether a caller may speak for a minion: each for itself, and a syndic also for
// minions without an accepted key here.
func (m *Master) speaksFor(c *call, id string) bool {
	if id == c.ID {
		return true
	}
	if !m.isSyndic(c.ID) {
		return false
	}
	_, known := m.deps.Keys.Accepted(id)
	return !known
}

func mapOf(m value.Map, key string) (value.Map, bool) {
	v, _ := m.Get(key)
	out, ok := v.(value.Map)
	return out, ok
}

// maxKnownJobs bounds the jobs whose loads are known to be stored. For a forgotten one the next
// return costs a read and a redundant record.
const maxKnownJobs = 8192

// knownJob is what this master remembers about a job with a load.
type knownJob struct {
	nocache bool
	own     bool // minions began it and nobody published it, as far as this master knows
}

// knownJobs remembers the latest jobs with a load.
type knownJobs struct {
	mu   sync.RWMutex // guards the rest
	jobs map[string]knownJob
	ring []string
	next int
}

func newKnownJobs() *knownJobs {
	return &knownJobs{jobs: make(map[string]knownJob), ring: make([]string, maxKnownJobs)}
}

func (k *knownJobs) get(jid string) (job knownJob, known bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	job, known = k.jobs[jid]
	return job, known
}

// add remembers a job. Nocache and "published" are kept once set.
func (k *knownJobs) add(jid string, job knownJob) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if was, ok := k.jobs[jid]; ok {
		k.jobs[jid] = knownJob{nocache: was.nocache || job.nocache, own: was.own && job.own}
		return
	}
	delete(k.jobs, k.ring[k.next])
	k.ring[k.next] = jid
	k.next = (k.next + 1) % maxKnownJobs
	k.jobs[jid] = job
}
