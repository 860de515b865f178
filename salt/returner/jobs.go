package returner

import "clustermaster/value"

// Job keeps a published job for the job caches: ext_job_cache and master_job_cache.
func (r *Returners) Job(jid string, load value.Map, minions []string) {
	list := make([]any, len(minions))
	for i, id := range minions {
		list[i] = id
	}
	r.keepMap(value.Map{{Key: "kind", Value: "load"}, {Key: "jid", Value: jid},
		{Key: "load", Value: load}, {Key: "minions", Value: list}}, r.ext, r.jobs)
}

// Minions keeps the minions that a syndic names for a job, for master_job_cache.
func (r *Returners) Minions(jid, syndic string, minions []string) {
	list := make([]any, len(minions))
	for i, id := range minions {
		list[i] = id
	}
	r.keepMap(value.Map{{Key: "kind", Value: "minions"}, {Key: "jid", Value: jid},
		{Key: "minions", Value: list}, {Key: "syndic", Value: syndic}}, r.jobs)
}

// Return keeps a minion's return for master_job_cache, as the minion sent it. end is when it came,
// or "" if the load does not record it.
func (r *Returners) Return(jid string, load value.RawMap, end string) {
	if r.jobs == "" {
		return
	}
	whole, err := load.Pack()
	item, err2 := packed("return", value.RawPair{Key: "jid", Value: raw(jid)},
		value.RawPair{Key: "load", Value: whole}, value.RawPair{Key: "end", Value: raw(end)})
	if err == nil {
		err = err2
	}
	r.keep(r.jobs, item, err)
}

// Ran keeps the result of a scheduled run for the returner that its entry names. On nil it does
// nothing.
func (r *Returners) Ran(returner string, result value.Map) {
	if r == nil {
		return
	}
	r.keepMap(value.Map{{Key: "kind", Value: "result"}, {Key: "load", Value: result}},
		r.runs[returner])
}

// keepMap puts an item into those of the queues that exist.
func (r *Returners) keepMap(m value.Map, queues ...string) {
	for _, queue := range queues {
		if queue != "" {
			item, err := value.Pack(m)
			r.keep(queue, item, err)
		}
	}
}
