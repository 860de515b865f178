package backup

import (
	"context"
	"fmt"

	"clustermaster/store/jobcache"
	"clustermaster/value"
)

// saveJobs adds all jobs, one after the other. note says what could not be read.
func (b *Files) saveJobs(ctx context.Context, w *Writer) (n int, note string, err error) {
	listed, coverage, err := b.Jobs.JIDs(ctx)
	if err != nil {
		return 0, "", err
	}
	for _, jid := range listed {
		job, ok, err := b.Jobs.Job(ctx, jid)
		if err != nil {
			return n, "", err
		}
		if !ok {
			continue // expired meanwhile
		}
		if err := b.saveJob(ctx, w, job); err != nil {
			return n, "", err
		}
		n++
	}
	return n, coverage.String(), nil
}

// maxPart is how many bytes of returns travel in one record.
const maxPart = 8 << 20

// saveJob adds a job, in as many records as its returns need: all of them may be more than this
// master's memory holds.
func (b *Files) saveJob(ctx context.Context, w *Writer, job jobcache.Job) error {
	load, err := value.Pack(job.Load)
	if err != nil {
		return fmt.Errorf("pack job %s: %w", job.JID, err)
	}
	part := func() Job {
		return Job{JID: job.JID, Load: load, Minions: job.Minions, EndTime: job.EndTime, Returns: map[string]Return{}}
	}
	out, bytes := part(), int64(0)
	if err := b.Jobs.EachReturn(ctx, job.JID, func(id string, r jobcache.Return) error {
		size := r.Size()
		if bytes > 0 && bytes+size > maxPart {
			if err := w.Add(out); err != nil {
				return err
			}
			out, bytes = part(), 0
		}
		bytes += size
		out.Returns[id] = Return{Return: r.Return, Retcode: r.Retcode, Success: r.Success,
			FunArgs: r.FunArgs, Out: r.Out, Stamp: r.Stamp}
		return nil
	}); err != nil {
		return err
	}
	return w.Add(out)
}

// putJob writes a job, or a part of one; an existing one stays.
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
