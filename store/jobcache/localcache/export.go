package localcache

import (
	"context"
	"log/slog"
	"path/filepath"

	"clustermaster/store/durable"
	"clustermaster/store/jobcache"
	"clustermaster/store/ringstore"
)

// All reads the jobs of the whole cluster.
type All interface {
	JIDs(ctx context.Context) ([]string, ringstore.Coverage, error)
	Job(ctx context.Context, jid string) (jobcache.Job, bool, error)
	EachReturn(ctx context.Context, jid string, fn func(id string, r jobcache.Return) error) error
}

// Exporter writes the jobs of the whole cluster.
type Exporter struct {
	Opts Options
	Jobs All
	Log  *slog.Logger
}

// Export writes jobs and their returns, those whose jid is not before since. Returns that are on
// disk stay as they are. It counts what the files have now and the returns that were not written
// (the log has each), and says what part of the ring could not be read ("": none).
func (x Exporter) Export(ctx context.Context, since string) (jobs, returns, failed int,
	incomplete string, err error) {
	c, err := New(x.Opts, Deps{Log: x.Log})
	if err != nil {
		return 0, 0, 0, "", err
	}
	all := x.Jobs
	list, cover, err := all.JIDs(ctx)
	if err != nil {
		return 0, 0, 0, "", err
	}
	for _, jid := range list {
		if jid < since {
			continue
		}
		job, _, err := all.Job(ctx, jid)
		if err != nil {
			return jobs, returns, failed, "", err
		}
		if len(job.Load) == 0 {
			continue // or it expired meanwhile
		}
		if err := c.write(job.JID, job.Load, job.Minions); err != nil {
			return jobs, returns, failed, "", err
		}
		if job.EndTime != "" {
			if err := replace(filepath.Join(c.folder(job.JID), endFile),
				[]byte(job.EndTime)); err != nil {
				return jobs, returns, failed, "", err
			}
		}
		jobs++
		if err := all.EachReturn(ctx, job.JID, func(id string, r jobcache.Return) error {
			err := c.writeReturn(job.JID, id, r)
			switch {
			case err == nil:
				returns++
			case durable.TakesNothing(err):
				return err
			default:
				failed++
				c.log.Error("return not written as a file", "jid", job.JID, "minion", id, "err", err)
			}
			return nil
		}); err != nil {
			return jobs, returns, failed, "", err
		}
	}
	return jobs, returns, failed, cover.String(), nil
}
