package localcache

import (
	"context"
	"path/filepath"

	"clustermaster/store/jobcache"
	"clustermaster/store/ringstore"
)

// endFile holds when a job ended (salt/returners/local_cache.py).
const endFile = "endtime"

// All reads the jobs of the whole cluster.
type All interface {
	Jobs(ctx context.Context) ([]jobcache.Job, ringstore.Coverage, error)
	Job(ctx context.Context, jid string) (jobcache.Job, bool, error)
	EachReturn(ctx context.Context, jid string, fn func(id string, r jobcache.Return) error) error
}

// Exporter writes the jobs of the whole cluster.
type Exporter struct {
	Options Options
	Jobs    All
}

// Export writes jobs and their returns, those whose jid is not before since. Returns that are on
// disk stay as they are. It counts what the files have now, and says what part of the ring could
// not be read ("": none).
func (x Exporter) Export(ctx context.Context, since string) (jobs, returns int, incomplete string,
	err error) {
	c, err := New(x.Options, Deps{})
	if err != nil {
		return 0, 0, "", err
	}
	all := x.Jobs
	list, cover, err := all.Jobs(ctx)
	if err != nil {
		return 0, 0, "", err
	}
	for _, head := range list {
		if head.JID < since || len(head.Load) == 0 {
			continue
		}
		job, found, err := all.Job(ctx, head.JID)
		if err != nil {
			return jobs, returns, "", err
		}
		if !found {
			continue // it expired meanwhile
		}
		if err := c.write(job.JID, job.Load, job.Minions); err != nil {
			return jobs, returns, "", err
		}
		if job.EndTime != "" {
			if err := replace(filepath.Join(c.folder(job.JID), endFile),
				[]byte(job.EndTime)); err != nil {
				return jobs, returns, "", err
			}
		}
		jobs++
		if err := all.EachReturn(ctx, job.JID, func(id string, r jobcache.Return) error {
			returns++
			return c.writeReturn(job.JID, id, r)
		}); err != nil {
			return jobs, returns, "", err
		}
	}
	return jobs, returns, cover.String(), nil
}
