package localcache

import (
	"context"
	"strings"
	"time"

	"clustermaster/serve/event"
	"clustermaster/store/jobcache"
)

// follower writes the returns of one job. Cache.mu guards it.
type follower struct {
	named   map[string]struct{} // all minions of the job
	waiting map[string]struct{}
}

// follow writes the returns of a job, beginning with events that fire from now on.
func (c *Cache) follow(jid string, minions []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.followed[jid]
	if f == nil {
		if c.ended || len(c.followed) >= maxFollowed {
			c.missed.Inc()
			c.log.Warn("too many jobs at a time; the returns of this one are not written for Salt's own clients",
				"jid", jid)
			return
		}
		f = &follower{named: make(map[string]struct{}), waiting: make(map[string]struct{})}
		c.followed[jid] = f
		sub := c.deps.Mesh.Follow("salt/job/" + jid + "/ret/")
		c.running.Go(func() {
			defer sub.Close()
			c.take(jid, f, sub)
		})
	}
	for _, id := range minions {
		if _, known := f.named[id]; !known {
			f.named[id], f.waiting[id] = struct{}{}, struct{}{}
		}
	}
}

// take writes returns until all minions have returned (a batch may add minions for a while) or its
// time has ended.
func (c *Cache) take(jid string, f *follower, sub *event.Subscription) {
	ctx, cancel := context.WithTimeout(c.life, followFor)
	defer cancel()
	const linger = 10 * time.Second
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		select {
		case e, ok := <-sub.C:
			if !ok {
				return
			}
			c.takeReturn(ctx, jid, f, strings.TrimPrefix(e.Tag, "salt/job/"+jid+"/ret/"))
			idle.Reset(linger)
		case <-idle.C:
			if c.over(jid, f, false) {
				return
			}
			idle.Reset(linger)
		case <-ctx.Done():
			c.over(jid, f, true)
			return
		}
	}
}

// over ends a follower if no return is missing, or in any case with anyway.
func (c *Cache) over(jid string, f *follower, anyway bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(f.waiting) > 0 && !anyway {
		return false
	}
	delete(c.followed, jid)
	return true
}

// takeReturn writes the return that an event announced. It reads the return from the job cache:
// events are cut down to max_event_size, stored returns are not.
func (c *Cache) takeReturn(ctx context.Context, jid string, f *follower, id string) {
	err := c.deps.Jobs.ReadReturns(ctx, jid, []string{id},
		func(id string, r jobcache.Return) error {
			err := c.writeReturn(jid, id, r)
			c.mu.Lock()
			delete(f.waiting, id) // written or not: it does not come again
			c.mu.Unlock()
			return err
		})
	if err != nil && ctx.Err() == nil {
		c.failed.Inc()
		c.log.Warn("return not written for Salt's own clients", "jid", jid, "minion", id,
			"err", err)
	}
}
