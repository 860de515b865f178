package runner

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sort"
	"time"

	"clustermaster/salt/function"
	"clustermaster/store/memory"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
	"clustermaster/wire"
)

// JobRecord is one job of the job cache.
type JobRecord struct {
	JID     string
	Load    value.Map // what was published
	Minions []string  // the minions that were expected to return, sorted
	EndTime string    // "" if unknown
}

// JobReturn is what one minion returned. A nil Retcode or Success was not sent.
type JobReturn struct {
	Return, Retcode, Success any
	Out                      string
}

// JobReader reads the job cache of the whole cluster.
type JobReader interface {
	// Job returns false for a jid that is unknown to all masters.
	Job(ctx context.Context, jid string) (JobRecord, bool, error)
	Returns(ctx context.Context, jid string) (map[string]JobReturn, error)
	// Returned lists the minions that have returned, sorted.
	Returned(ctx context.Context, jid string) ([]string, error)
	// EachLoad calls fn with the load of each job, a map that is still packed, one after the other
	// and in no order, and stops at its error. incomplete says what could not be read ("incomplete:
	// 3 of 256 partitions"), or is "".
	EachLoad(ctx context.Context, fn func(jid string, load value.Raw) error) (incomplete string,
		err error)
}

// JobsDeps is what the family jobs uses.
type JobsDeps struct {
	Jobs JobReader
	// Other returns a returner's job cache; the error says why there is none.
	Other   func(returner string) (JobReader, error)
	Minions Asker
	Running func() []value.Map // Runner.Running of the runner that the family is part of
	Now     func() time.Time   // nil: time.Now
}

// localCache is Salt's name of the job cache that needs no server: here, the cluster's.
const localCache = "local_cache"

// from makes a function read the job cache that ext_source names.
func (d JobsDeps) from(run func(JobsDeps, context.Context, *Call) (any,
	error)) func(context.Context, *Call) (any, error) {
	return func(ctx context.Context, c *Call) (any, error) {
		if source := c.Text("ext_source"); source != "" && source != localCache {
			jobs, err := d.Other(source)
			if err != nil {
				return nil, err
			}
			other := d
			other.Jobs = jobs
			return run(other, ctx, c)
		}
		return run(d, ctx, c)
	}
}

// Jobs is the family jobs.
func Jobs(d JobsDeps) []Function {
	if d.Now == nil {
		d.Now = time.Now
	}
	ext, progress, out := function.Opt("ext_source", nil), function.Opt("display_progress",
		false), function.Opt("outputter", nil)
	return []Function{
		{
			Name: "jobs.active", Params: []function.Param{progress}, Run: d.active,
			Doc: `Ask all minions what they are running, and list it by job. Waits for the whole timeout if a
minion does not answer.

Example:

    salt-run jobs.active`,
		},
		{
			Name: "jobs.lookup_jid", Params: []function.Param{function.Need("jid"), ext,
				function.Opt("returned", true), function.Opt("missing", false), progress},
			Run: d.from(JobsDeps.lookupJID),
			Doc: `Show what the minions returned for a job.

jid
    The job's id.

returned : True
    Include minions that returned.

missing : False
    Include minions that did not.

Example:

    salt-run jobs.lookup_jid 20130916125524463507`,
		},
		{
			Name: "jobs.list_job", Params: []function.Param{function.Need("jid"), ext, progress},
			Run: d.from(JobsDeps.listJob),
			Doc: `Show a job: function, arguments, target and returns.

Example:

    salt-run jobs.list_job 20130916125524463507`,
		},
		{
			Name: "jobs.list_jobs", Run: d.from(JobsDeps.listJobs),
			Params: []function.Param{ext, out, function.Opt("search_metadata", nil),
				function.Opt("search_function", nil), function.Opt("search_target", nil),
				function.Opt("start_time", nil),
				function.Opt("end_time", nil), progress},
			Doc: `List all jobs in the job cache. A job must pass all filters given.

search_metadata
    A map; one equal pair in the job's metadata is enough.

search_function, search_target
    Globs, as a list or with commas.

start_time, end_time
    Jobs that started at or after, at or before this time (UTC).

Example:

    salt-run jobs.list_jobs search_function='test.*,pkg.install' search_target='db*'
    salt-run jobs.list_jobs start_time='2015, Mar 16 19:00' end_time='2015, Mar 18 22:00'`,
		},
		{
			Name: "jobs.list_jobs_filter",
			Params: []function.Param{function.Need("count"), function.Opt("filter_find_job", true),
				ext, out, progress}, Run: d.from(JobsDeps.listJobsFilter),
			Doc: `List the newest jobs.

count
    How many.

filter_find_job : True
    Leave out the saltutil.find_job calls of waiting commands.

Example:

    salt-run jobs.list_jobs_filter 50`,
		},
		{
			Name: "jobs.print_job", Params: []function.Param{function.Need("jid"), ext},
			Run: d.from(JobsDeps.printJob),
			Doc: `Show a job, with its returns, below its id.

Example:

    salt-run jobs.print_job 20130916125524463507`,
		},
		{
			Name: "jobs.exit_success", Params: []function.Param{function.Need("jid"), ext},
			Run: d.from(JobsDeps.exitSuccess),
			Doc: `Show for each minion of a job whether it returned something true.

Example:

    salt-run jobs.exit_success 20160520145827701627`,
		},
		{
			Name: "jobs.last_run", Params: []function.Param{ext, out, function.Opt("metadata", nil),
				function.Opt("function", nil), function.Opt("target", nil), progress},
			Run: d.from(JobsDeps.lastRun),
			Doc: `Show the newest job that passes the filters; False if there is none.

Example:

    salt-run jobs.last_run function=cmd.run target='web*'`,
		},
		{
			Name: "jobs.master", Run: d.master,
			Doc: `List the runner functions that run on this master now, this call among them.

Example:

    salt-run jobs.master`,
		},
	}
}

func (d JobsDeps) lookupJID(ctx context.Context, c *Call) (any, error) {
	jid := c.Text("jid")
	if c.True("display_progress") {
		c.Progress(value.Map{{Key: "message", Value: "Querying returner: " + localCache}})
	}
	rec, _, err := d.Jobs.Job(ctx, jid)
	if err != nil {
		return nil, fmt.Errorf("look up job %s: %w", jid, err)
	}
	returns, err := d.Jobs.Returns(ctx, jid)
	if err != nil {
		return nil, fmt.Errorf("look up returns of job %s: %w", jid, err)
	}
	ret, outputter := value.Map{}, ""
	for i, id := range sortedIDs(returns) {
		if i == 0 {
			outputter = returns[id].Out
		}
		if c.True("display_progress") {
			c.Progress(value.Map{{Key: "message", Value: id}})
		}
		if c.True("returned") {
			ret = append(ret, value.Pair{Key: id, Value: returns[id].Return})
		}
	}
	if c.True("missing") {
		for _, id := range rec.Minions {
			if _, ok := returns[id]; !ok {
				ret = append(ret, value.Pair{Key: id, Value: "Minion did not return"})
			}
		}
	}
	return withOutputter(outputter, ret), nil
}

func (d JobsDeps) listJob(ctx context.Context, c *Call) (any, error) {
	jid := c.Text("jid")
	job, err := d.oneJob(ctx, jid)
	if err != nil {
		return nil, err
	}
	return append(value.Map{{Key: "jid", Value: jid}}, job...), nil
}

func (d JobsDeps) printJob(ctx context.Context, c *Call) (any, error) {
	jid := c.Text("jid")
	job, err := d.oneJob(ctx, jid)
	if err != nil {
		return nil, err
	}
	return value.Map{{Key: jid, Value: job}}, nil
}

// oneJob is the record of a job with its returns. An unknown jid gives Salt's Error field, unless
// there are returns without a publication: those are shown.
func (d JobsDeps) oneJob(ctx context.Context, jid string) (value.Map, error) {
	rec, ok, err := d.Jobs.Job(ctx, jid)
	if err != nil {
		return nil, fmt.Errorf("look up job %s: %w", jid, err)
	}
	returns, err := d.Jobs.Returns(ctx, jid)
	if err != nil {
		return nil, fmt.Errorf("look up returns of job %s: %w", jid, err)
	}
	job := value.Map{{Key: "Error", Value: "Cannot contact returner or no job with this jid"}}
	if ok && len(rec.Load) > 0 {
		job = describe(rec)
		if len(rec.Minions) > 0 {
			job = append(job, value.Pair{Key: "Minions", Value: value.Texts(rec.Minions)})
		}
	}
	job = append(job, value.Pair{Key: "StartTime", Value: wire.JIDTime(jid)},
		value.Pair{Key: "Result", Value: resultMap(returns)})
	if rec.EndTime != "" {
		job = append(job, value.Pair{Key: "EndTime", Value: rec.EndTime})
	}
	return job, nil
}

func (d JobsDeps) exitSuccess(ctx context.Context, c *Call) (any, error) {
	jid := c.Text("jid")
	rec, _, err := d.Jobs.Job(ctx, jid)
	if err != nil {
		return nil, fmt.Errorf("look up job %s: %w", jid, err)
	}
	returns, err := d.Jobs.Returns(ctx, jid)
	if err != nil {
		return nil, fmt.Errorf("look up returns of job %s: %w", jid, err)
	}
	ret := value.Map{}
	for _, id := range rec.Minions {
		ret = append(ret, value.Pair{Key: id, Value: value.Truth(returns[id].Return)})
	}
	for _, id := range sortedIDs(returns) {
		if value.Truth(returns[id].Return) {
			ret = ret.Set(id, true)
		}
	}
	return ret, nil
}

func (d JobsDeps) active(ctx context.Context, c *Call) (any, error) {
	answers, err := ask(ctx, c, d.Minions, Ask{Tgt: "*", TgtType: "glob", Fun: "saltutil.running"})
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(answers.Returned))
	for id := range answers.Returned {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	if c.True("display_progress") {
		c.Progress(value.Map{{Key: "message", Value: "Attempting to contact minions: " +
			value.Repr(value.Texts(ids))}})
	}
	running := map[string]value.Map{}
	var jids []string
	for _, id := range ids {
		if c.True("display_progress") {
			c.Progress(value.Map{{Key: "message", Value: "Received reply from minion " + id}})
		}
		list, _ := value.Plain(answers.Returned[id].Return).([]any)
		for _, e := range list {
			load, ok := e.(value.Map)
			if !ok || load.String("jid") == "" {
				continue
			}
			jid := load.String("jid")
			job, known := running[jid]
			if !known {
				jids = append(jids, jid)
				job = append(describe(JobRecord{JID: jid, Load: load}),
					value.Pair{Key: "StartTime", Value: wire.JIDTime(jid)},
					value.Pair{Key: "Running", Value: []any{}}, value.Pair{Key: "Returned",
						Value: []any{}})
			}
			pid, _ := load.Get("pid")
			at, _ := job.Get("Running")
			running[jid] = job.Set("Running", append(at.([]any), value.Map{{Key: id, Value: pid}}))
		}
	}
	ret := value.Map{}
	for _, jid := range jids {
		returned, err := d.Jobs.Returned(ctx, jid)
		if err != nil {
			return nil, fmt.Errorf("look up returns of job %s: %w", jid, err)
		}
		ret = append(ret, value.Pair{Key: jid,
			Value: running[jid].Set("Returned", value.Texts(returned))})
	}
	return ret, nil
}

func (d JobsDeps) listJobs(ctx context.Context, c *Call) (any, error) {
	f := jobFilter{metadata: c.Arg("search_metadata"), functions: c.Texts("search_function"),
		targets: c.Texts("search_target")}
	var err error
	if f.start, err = parseTime(c.Text("start_time"), d.Now()); err != nil {
		return nil, err
	}
	if f.end, err = parseTime(c.Text("end_time"), d.Now()); err != nil {
		return nil, err
	}
	records, err := d.matching(ctx, c, f)
	if err != nil {
		return nil, err
	}
	ret := value.Map{}
	for _, rec := range records {
		ret = append(ret, value.Pair{Key: rec.JID,
			Value: append(describe(rec),
				value.Pair{Key: "StartTime", Value: wire.JIDTime(rec.JID)})})
	}
	return withOutputter(c.Text("outputter"), ret), nil
}

func (d JobsDeps) listJobsFilter(ctx context.Context, c *Call) (any, error) {
	count, err := c.Number("count")
	if err != nil {
		return nil, err
	}
	var records []JobRecord
	if n := int(min(count, 1e9)); n > 0 {
		if records, err = d.matching(ctx, c, jobFilter{noFindJob: c.True("filter_find_job"),
			newest: n}); err != nil {
			return nil, err
		}
	}
	ret := []any{}
	for _, rec := range records {
		ret = append(ret, append(describe(rec), value.Pair{Key: "JID", Value: rec.JID},
			value.Pair{Key: "StartTime", Value: wire.JIDTime(rec.JID)}))
	}
	if out := c.Text("outputter"); out != "" {
		return value.Map{{Key: "outputter", Value: out}, {Key: "data", Value: ret}}, nil
	}
	return ret, nil
}

func (d JobsDeps) lastRun(ctx context.Context, c *Call) (any, error) {
	if c.True("metadata") {
		if _, ok := c.Arg("metadata").(value.Map); !ok {
			return false, nil
		}
	}
	records, err := d.matching(ctx, c, jobFilter{metadata: c.Arg("metadata"),
		functions: c.Texts("function"), targets: c.Texts("target"), newest: 1})
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return false, nil
	}
	jid := records[0].JID
	job, err := d.oneJob(ctx, jid)
	if err != nil {
		return nil, err
	}
	return value.Map{{Key: jid, Value: job}}, nil
}

func (d JobsDeps) master(context.Context, *Call) (any, error) {
	ret := []any{}
	if d.Running != nil {
		for _, call := range d.Running() {
			ret = append(ret, append(append(value.Map(nil), call...),
				value.Pair{Key: "pid", Value: int64(os.Getpid())}))
		}
	}
	return ret, nil
}

// matching reads the jobs that pass a filter, oldest first, and reports on standard error what
// could not be read.
func (d JobsDeps) matching(ctx context.Context, c *Call, f jobFilter) ([]JobRecord, error) {
	if c.True("display_progress") {
		c.Progress(value.Map{{Key: "message", Value: "Querying the job cache of all masters"}})
	}
	kept := jobList{filter: f}
	incomplete, err := d.Jobs.EachLoad(ctx, kept.add)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	if incomplete != "" {
		c.Warn(incomplete + "; jobs kept by masters that can't be reached are not listed")
	}
	kept.cut()
	records, short := make([]JobRecord, len(kept.jobs)), 0
	for i, job := range kept.jobs {
		records[i] = job.JobRecord
		if job.short {
			short++
		}
	}
	if short > 0 {
		c.Warn(fmt.Sprintf("large fields of %d jobs are not listed, they are too much for the memory of this master; "+
			"jobs.list_job shows those of one job", short))
	}
	return records, nil
}

// jobList collects the jobs that pass a filter, as far as memory allows. Minions make jobs up: what
// they say of one must not keep others from being listed.
type jobList struct {
	filter jobFilter
	jobs   []heldJob
	before string // older jobs are not among the newest
	bytes  int64  // of all jobs
}

type heldJob struct {
	JobRecord
	size  int64
	short bool // large fields are replaced
}

const (
	jobSize    = 256 // what a job counts beside the values of its load
	fieldShare = 16  // a field has at most this part of what an answer may have
	shortField = 1 << 10
)

// shownFields of a load are what filters and describe look at.
var shownFields = []string{"fun", "arg", "tgt", "tgt_type", "user", "metadata", "kwargs"}

// unlisted stands for a field that is too large.
const unlisted = "too large to be listed"

// add keeps what is shown of a job if it passes the filter. Once the jobs have half of what they
// may have, it shortens further ones.
func (l *jobList) add(jid string, packed value.Raw) error {
	if jid < l.before || !l.filter.during(jid) {
		return nil
	}
	if head, err := value.ReadHead(packed, 0); err != nil || head.N == 0 {
		return err
	}
	most := memory.MostOfAnswer()
	job, err := shown(jid, packed, most/fieldShare)
	if err != nil || !l.filter.takes(job.JobRecord) {
		return err
	}
	if l.bytes+job.size > most/2 {
		if job, err = shown(jid, packed, shortField); err != nil {
			return err
		}
	}
	if l.bytes+job.size > most {
		return fmt.Errorf("they are %w", &memory.AnswerError{Most: most})
	}
	l.bytes += job.size
	l.jobs = append(l.jobs, job)
	if n := l.filter.newest; n > 0 && len(l.jobs) >= 2*n {
		l.cut()
	}
	return nil
}

// shown decodes what is shown of a job, of each field at most so many bytes.
func shown(jid string, packed value.Raw, most int64) (job heldJob, err error) {
	job = heldJob{JobRecord: JobRecord{JID: jid}, size: jobSize + int64(len(jid))}
	fields := make(value.RawMap, 0, len(shownFields))
	for _, field := range shownFields {
		v := packed.Lookup(field)
		if len(v) == 0 {
			continue
		}
		if memory.Size(v) > most {
			job.short = true
			note := any(unlisted)
			if field == "arg" {
				note = []any{unlisted}
			}
			if v, err = value.Pack(note); err != nil {
				return job, err
			}
		}
		fields = fields.Append(field, v)
		job.size += memory.Size(v)
	}
	job.Load, err = fields.Map()
	return job, err
}

// cut sorts the jobs and drops those that are not among the newest.
func (l *jobList) cut() {
	slices.SortFunc(l.jobs, func(a, b heldJob) int { return cmp.Compare(a.JID, b.JID) })
	if n := l.filter.newest; n > 0 && len(l.jobs) >= n {
		old := len(l.jobs) - n
		for _, job := range l.jobs[:old] {
			l.bytes -= job.size
		}
		l.jobs = slices.Delete(l.jobs, 0, old)
		l.before = l.jobs[0].JID
	}
}

// jobFilter is the filter of list_jobs; the zero value passes all jobs.
type jobFilter struct {
	metadata           any // true ones other than a map pass no job
	functions, targets []string
	start, end         time.Time
	noFindJob          bool
	newest             int // at most so many; 0: all
}

// during reports whether a job began between start and end.
func (f jobFilter) during(jid string) bool {
	if f.start.IsZero() && f.end.IsZero() {
		return true
	}
	at, ok := wire.ParseJID(jid)
	return ok && (f.start.IsZero() || !at.Before(f.start)) && (f.end.IsZero() || !at.After(f.end))
}

func (f jobFilter) takes(rec JobRecord) bool {
	fun, _ := rec.Load.Get("fun")
	tgt, _ := rec.Load.Get("tgt")
	return !(f.noFindJob && fun == "saltutil.find_job") &&
		(!value.Truth(f.metadata) || sharesPair(metadata(rec.Load), f.metadata)) &&
		(len(f.targets) == 0 || anyMatch(textValues(tgt), f.targets)) &&
		(len(f.functions) == 0 || anyMatch(textValues(fun), f.functions))
}

// textValues returns a text, or each text of a list: targets with commas and the functions of a
// compound job are lists.
func textValues(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	return textList(v)
}

func anyMatch(values, globs []string) bool {
	for _, v := range values {
		for _, g := range globs {
			if fnmatch.Match(g, v) {
				return true
			}
		}
	}
	return false
}

// sharesPair reports whether both are maps with an equal pair.
func sharesPair(have, want any) bool {
	h, _ := have.(value.Map)
	w, _ := want.(value.Map)
	return slices.ContainsFunc(w, func(p value.Pair) bool {
		return slices.ContainsFunc(h, func(q value.Pair) bool {
			return value.Equal(p.Key, q.Key) && value.Equal(p.Value, q.Value)
		})
	})
}

// describe is the description of a job that all functions share.
func describe(rec JobRecord) value.Map {
	field := func(key string, fallback any) any {
		if v, ok := rec.Load.Get(key); ok {
			return v
		}
		return fallback
	}
	args, ok := value.Plain(field("arg", nil)).([]any)
	if !ok {
		args = []any{}
	}
	ret := value.Map{
		{Key: "Function", Value: field("fun", "unknown-function")}, {Key: "Arguments", Value: args},
		{Key: "Target", Value: field("tgt", "unknown-target")},
		{Key: "Target-type", Value: field("tgt_type", "list")},
		{Key: "User", Value: field("user", "root")},
	}
	if meta := metadata(rec.Load); meta != nil {
		ret = append(ret, value.Pair{Key: "Metadata", Value: meta})
	}
	return ret
}

// metadata looks in three places, because it depends on the publisher where the metadata is.
func metadata(load value.Map) any {
	if v, ok := load.Get("metadata"); ok {
		return v
	}
	if kw, ok := load.Get("kwargs"); ok {
		if m, ok := kw.(value.Map); ok {
			if v, ok := m.Get("metadata"); ok {
				return v
			}
		}
	}
	arg, _ := load.Get("arg")
	list, _ := arg.([]any)
	for _, a := range list {
		if m, ok := a.(value.Map); ok {
			if mark, _ := m.Get("__kwarg__"); mark == true {
				if v, ok := m.Get("metadata"); ok {
					return v
				}
			}
		}
	}
	return nil
}

func resultMap(returns map[string]JobReturn) value.Map {
	ret := value.Map{}
	for _, id := range sortedIDs(returns) {
		r := returns[id]
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
		ret = append(ret, value.Pair{Key: id, Value: one})
	}
	return ret
}

func withOutputter(name string, data value.Map) value.Map {
	if name == "" {
		return data
	}
	return value.Map{{Key: "outputter", Value: name}, {Key: "data", Value: data}}
}

func sortedIDs(returns map[string]JobReturn) []string {
	ids := make([]string, 0, len(returns))
	for id := range returns {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}
