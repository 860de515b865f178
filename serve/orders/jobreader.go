package orders

import (
	"context"
	"fmt"

	"clustermaster/salt/runner"
	"clustermaster/store/jobcache"
	"clustermaster/value"
)

// JobReader gives the runner family jobs access to the job cache.
type JobReader struct{ *jobcache.Cache }

func record(j jobcache.Job) runner.JobRecord {
	return runner.JobRecord{JID: j.JID, Load: j.Load, Minions: j.Minions, EndTime: j.EndTime}
}

func (j JobReader) Job(ctx context.Context, jid string) (runner.JobRecord, bool, error) {
	job, ok, err := j.Cache.Job(ctx, jid)
	return record(job), ok, err
}

func (j JobReader) Returns(ctx context.Context, jid string) (map[string]runner.JobReturn, error) {
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

func (j JobReader) EachLoad(ctx context.Context,
	fn func(jid string, load value.Raw) error) (string, error) {
	cover, err := j.Cache.EachLoad(ctx, fn)
	return cover.String(), err
}
