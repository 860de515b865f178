package settings

import (
	"slices"
	"time"

	"clustermaster/config"
	"clustermaster/salt/returner"
	"clustermaster/salt/schedule"
	"clustermaster/value"
)

// Returners takes the options of the master's returners.
func Returners(o *config.Options) returner.Options {
	values, _ := Value(o.Extra).(value.Map)
	out := returner.Options{
		Events:  texts(values, "event_return"),
		Allow:   texts(values, "event_return_whitelist"),
		Deny:    texts(values, "event_return_blacklist"),
		Queue:   int(whole(values, "event_return_queue")),
		MaxAge:  time.Duration(whole(values, "event_return_queue_max_seconds")) * time.Second,
		Timeout: o.PythonTimeout,
	}
	if name := values.String("event_return"); name != "" {
		out.Events = []string{name}
	}
	out.ExtJobCache = values.String("ext_job_cache")
	if cache := values.String("master_job_cache"); cache != "local_cache" {
		out.JobCache = cache
	}
	entries, _ := Value(o.Schedule).(value.Map)
	every := ScheduleReturners(o)
	for _, e := range entries {
		entry, _ := e.Value.(value.Map)
		returner, _ := entry.Get("returner")
		for _, name := range slices.Concat(schedule.Returners(returner), every) {
			if !slices.Contains(out.Schedule, name) {
				out.Schedule = append(out.Schedule, name)
			}
		}
	}
	return out
}

// ScheduleReturners lists the returners of every entry of the schedule.
func ScheduleReturners(o *config.Options) []string {
	return schedule.Returners(Value(o.Extra["schedule_returner"]))
}

// whole returns an option that is a number from 0 on.
func whole(m value.Map, name string) int64 {
	v, _ := m.Get(name)
	switch n := v.(type) {
	case int64:
		return max(n, 0)
	case int:
		return int64(max(n, 0))
	}
	return 0
}
