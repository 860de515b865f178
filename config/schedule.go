package config

import (
	"slices"

	"clustermaster/salt/saltpython"
	"clustermaster/value"
)

// checkSchedule reports entries of the option schedule that can never run; the starting master
// reports other faults.
func (l *loader) checkSchedule() {
	for _, e := range l.o.Schedule {
		name := value.Str(e.Key)
		if slices.Contains([]string{"enabled", "splay", "skip_function", "skip_during_range"},
			name) {
			continue
		}
		entry, ok := e.Value.(value.Map)
		if !ok {
			l.warn("schedule", "%s is not a map and is not run: write function and a time", name)
			continue
		}
		has := func(keys ...string) bool {
			return slices.ContainsFunc(keys,
				func(k string) bool { _, ok := entry.Get(k); return ok })
		}
		if !has("function", "func", "fun") {
			l.warn("schedule",
				"%s has no function and is not run: write the name of a runner function, such as state.orchestrate", name)
		}
		if !has("seconds", "minutes", "hours", "days", "cron", "when", "once") {
			l.warn("schedule",
				"%s has no time and is not run: write seconds, minutes, hours, days, cron, when or once", name)
		}
		if has("returner") || !isEmpty(l.o.Extra["schedule_returner"]) {
			if _, err := saltpython.Find(l.o.PythonHost); err != nil {
				l.warn("schedule",
					"%s has a returner, a module in Python, and its returns are events only: %v", name,
					err)
			}
		}
	}
}
