package config

import (
	"clustermaster/config/saltlog"
	"clustermaster/value"
)

// checkLogging finds formats, levels and syslog addresses that can't be used.
func (l *loader) checkLogging() {
	o := l.o
	for _, f := range []struct{ option, format, dates string }{
		{"log_fmt_console", o.LogFmtConsole, o.LogDatefmt},
		{"log_fmt_logfile", o.LogFmtLogfile, o.LogDatefmtLogfile},
	} {
		if _, err := saltlog.NewLayout(f.format, f.dates); err != nil {
			l.refuse(f.option, "%v; json asks for JSON lines", err)
		}
	}
	if _, err := saltlog.ParseLevels(o.GranularLevels()); err != nil {
		l.refuse("log_granular_levels", "%v", err)
	}
	if !isURI(o.LogFile) {
		return
	}
	if !saltlog.IsSyslog(o.LogFile) {
		l.refuse("log_file",
			"%q is neither a path nor an address of a syslog daemon; write file:///dev/log, udp://host:514 or "+
				"tcp://host:514", o.LogFile)
	} else if err := saltlog.CheckSyslog(o.LogFile); err != nil {
		l.refuse("log_file", "%v", err)
	}
}

// GranularLevels returns log_granular_levels as text: logger name to level.
func (o *Options) GranularLevels() map[string]string {
	levels := make(map[string]string, len(o.LogGranularLevels))
	for _, e := range o.LogGranularLevels {
		levels[value.Str(e.Key)] = value.Str(e.Value)
	}
	return levels
}
