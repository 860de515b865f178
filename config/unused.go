package config

import "reflect"

// unused are options of Salt's that this master takes and does nothing with, though an operator who sets one counts on it.
var unused = []struct{ option, text string }{
	{"auth.enable_expanded_auth_matching", "is not used: with it Salt grants nothing by entries that name minions; here they grant what they say, and computers of ldap(...) are one entry"},
	{"ipc_mode", "is not used: Salt's own clients find the event bus in sock_dir only"},
	{"key_logfile", "is not used: salt-key writes no log"},
	{"log_datefmt", "is not used: lines have Salt's default form"},
	{"log_datefmt_logfile", "is not used: lines have Salt's default form"}, {"log_fmt_console", "is not used: lines have Salt's default form"},
	{"log_fmt_logfile", "is not used: lines have Salt's default form"}, {"log_granular_levels", "is not used: log_level and log_level_logfile are those of all rooms"},
	{"log_rotate_max_bytes", "is not used: have logrotate move the file, with copytruncate"},
	{"ping_on_rotate", "is not used: a job that minions miss because keys were rotated is sent to them again"},
	{"presence_events", "is not used: no presence events are fired"},
}

// warnUnused names the options of unused that were switched on.
func (l *loader) warnUnused() {
	for _, u := range unused {
		v := l.o.Extra[u.option]
		if v == false || isEmpty(v) || reflect.DeepEqual(v, table()[u.option].fallback) {
			continue
		}
		l.warn(u.option, "%s", u.text)
	}
}
