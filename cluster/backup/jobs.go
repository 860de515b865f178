package backup

import (
	"context"
	"fmt"

	"clustermaster/store/jobcache"
	"clustermaster/value"
)

// saveJobs adds all jobs, one after the other. note says what could not be read.
func (b *Files) saveJobs(ctx context.Context, w *Writer) (n int, note string, err error) {
	listed, coverage, err := b.Jobs.Jobs(ctx)
	if err != nil {
		return 0, "", err
	}
	for _, head := range listed {
		job, ok, err := b.Jobs.Job(ctx, head.JID)
		if err != nil {
			return n, "", err
		}
		if !ok {
			continue // expired meanwhile
		}
		returns, err := b.Jobs.Returns(ctx, head.JID)
		if err != nil {
			return n, "", err
		}
		load, err := value.Pack(job.Load)
		if err != nil {
			return n, "", fmt.Errorf("pack job %s: %w", head.JID, err)
		}
		out := Job{JID: job.JID, Load: load, Minions: job.Minions, EndTime: job.EndTime,
			Returns: make(map[string]Return, len(returns))}
		for id, r := range returns {
			out.Returns[id] = Return{Return: r.Return, Retcode: r.Retcode, Success: r.Success,
				FunArgs: r.FunArgs, Out: r.Out, Stamp: r.Stamp}
		}
		if err := w.Add(out); err != nil {
			return n, "", err
		}
		n++
	}
	return n, coverage.String(), nil
}

// putJob writes a job; an existing one stays.
func (b *Files) putJob(ctx context.Context, j Job) error {
	packed, err := value.Unpack(j.Load)
	if err != nil {
		return fmt.Errorf("read job %s: %w", j.JID, err)
	}
	if load, ok := packed.(value.Map); ok && len(load) > 0 {
		if err := b.Jobs.SaveLoad(ctx, j.JID, load, j.Minions); err != nil {
			return err
		}
	}
	for id, r := range j.Returns {
		ret := jobcache.Return{Return: r.Return, Retcode: r.Retcode, Success: r.Success,
			FunArgs: r.FunArgs, Out: r.Out, Stamp: r.Stamp}
		if _, err := b.Jobs.SaveReturn(ctx, j.JID, id, ret, nil); err != nil {
			return err
		}
	}
	if j.EndTime != "" {
		return b.Jobs.SaveEndTime(ctx, j.JID, j.EndTime)
	}
	return nil
}
