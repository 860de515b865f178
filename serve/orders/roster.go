package orders

import (
	"context"
	"slices"
	"sync"

	"clustermaster/salt/gather"
	"clustermaster/value"
)

// Roster reaches targets without a minion, by salt-ssh (option enable_ssh_minions).
type Roster interface {
	// Targets lists the targets of the roster that tgt matches.
	Targets(ctx context.Context, tgt any, tgtType string) ([]string, error)
	// Run runs a function on these targets as a job. Answers are stored, and fire the events of
	// returns, as they come. It returns when all have come.
	Run(ctx context.Context, jid string, tgt any, tgtType, fun string, arg []any) error
}

// SetRoster sets the roster for JobsDeps.AlsoRoster. It is called before the first job.
func (j *Jobs) SetRoster(roster Roster) { j.roster.of = roster }

// findJob is the function by which a command asks whether a job still runs.
const findJob = "saltutil.find_job"

// rosterJobs are the jobs that run on targets of the roster.
type rosterJobs struct {
	of Roster

	mu      sync.Mutex // guards running
	running map[string]rosterJob
}

type rosterJob struct {
	fun     string
	targets []string
}

func (r *rosterJobs) get(jid string) (rosterJob, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, ok := r.running[jid]
	return job, ok
}

func (r *rosterJobs) set(jid string, job rosterJob) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[string]rosterJob{}
	}
	r.running[jid] = job
}

func (r *rosterJobs) end(jid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, jid)
}

// rosterTargets lists the targets of the roster that a job is also for.
func (j *Jobs) rosterTargets(ctx context.Context, p gather.Publish) []string {
	fun, one := p.Fun.(string)
	if !one || fun == findJob { // salt-ssh runs one function at a time
		return nil
	}
	targets, err := j.roster.of.Targets(ctx, value.Plain(p.Tgt), p.TgtType)
	if err != nil && ctx.Err() == nil {
		j.d.Log.Error("the roster can't be read: the job goes to minions only", "fun", fun, "err", err)
	}
	return targets
}

// runOnRoster begins a published job on targets of the roster.
func (j *Jobs) runOnRoster(jid string, p gather.Publish, targets []string) {
	fun, _ := p.Fun.(string)
	j.roster.set(jid, rosterJob{fun, targets})
	go func() {
		defer j.roster.end(jid)
		if err := j.roster.of.Run(j.d.Life, jid, value.Plain(p.Tgt), p.TgtType, fun, p.Arg); err != nil &&
			j.d.Life.Err() == nil {
			j.d.Log.Error("a job on targets of the roster failed", "jid", jid, "fun", fun, "err", err)
		}
	}()
}

// answerForRoster answers saltutil.find_job for targets on which the job still runs.
func (j *Jobs) answerForRoster(asked gather.Publish) {
	if asked.Fun != findJob || len(asked.Arg) == 0 {
		return
	}
	jid := value.Str(asked.Arg[0])
	job, running := j.roster.get(jid)
	ids, _ := value.Plain(asked.Tgt).([]any)
	if !running {
		return
	}
	for _, v := range ids {
		id, _ := v.(string)
		if !slices.Contains(job.targets, id) {
			continue
		}
		j.d.Fire("salt/job/"+asked.JID+"/ret/"+id, value.Map{
			{Key: "id", Value: id}, {Key: "jid", Value: asked.JID}, {Key: "fun", Value: findJob},
			{Key: "fun_args", Value: []any{jid}}, {Key: "retcode", Value: int64(0)},
			{Key: "success", Value: true},
			{Key: "return", Value: value.Map{{Key: "jid", Value: jid}, {Key: "fun", Value: job.fun}}},
		})
	}
}
