package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"clustermaster/config"
)

// reloader reads the configuration again on SIGHUP and applies the options that can change while a
// master runs.
type reloader struct {
	flags masterFlags
	lines *logging
	log   *slog.Logger
	// nil: only the log is reloaded
	live func(now *config.Options, changed []string) (names []string, use []func(), err error)

	mu      sync.Mutex
	opts    *config.Options // as last read
	inForce *config.Options // those of the start, with what was reloaded since
}

// options returns those in force.
func (r *reloader) options() *config.Options {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inForce
}

// ofLogging are the options that logging.use reads.
var ofLogging = []string{
	"log_datefmt", "log_datefmt_logfile", "log_file", "log_fmt_console", "log_fmt_logfile",
	"log_granular_levels", "log_level",
	"log_level_logfile", "log_rotate_backup_count", "log_rotate_max_bytes",
}

// reload leaves everything as it is if the configuration has an error, its main file has
// disappeared, or a file of it can't be read. It always reopens the log file, which logrotate may
// have renamed. One reload follows the other.
func (r *reloader) reload() {
	now, warnings, err := config.Load(r.flags.configDir, os.Getenv)
	if err = errors.Join(err, config.Broken(warnings)); err == nil {
		err = r.flags.apply(now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var changed, live []string
	var use []func()
	if main := r.opts.ConfFile; err == nil && slices.Contains(r.opts.Files(), main) &&
		!slices.Contains(now.Files(), main) {
		err = fmt.Errorf("%s has disappeared; write it again, an empty one for the defaults", main)
	}
	if err == nil {
		changed, live, use, err = r.prepare(now)
	}
	if err != nil {
		if lerr := r.lines.use(r.opts); lerr != nil {
			r.log.Error("log file not opened again", "err", lerr)
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.log.Error("options not reloaded; the old ones stay in force: " + line)
		}
		return
	}
	for _, put := range use {
		put()
	}
	r.opts = now
	var applied, later []string
	for _, name := range changed {
		if slices.Contains(ofLogging, name) || slices.Contains(live, name) {
			applied = append(applied, name)
		} else {
			later = append(later, name)
		}
	}
	r.inForce = r.inForce.With(now, applied)
	for _, w := range warnings {
		r.log.Warn(w.String(), "component", "config")
	}
	r.log.Warn("options reloaded", "in_force", strings.Join(applied, " "))
	if len(later) > 0 {
		r.log.Warn("these options were changed in the files and need a restart of this master; the other masters "+
			"serve meanwhile",
			"options", strings.Join(later, " "))
	}
}

// prepare checks everything that other options need before use puts any of them in force: live are
// the changed ones that the master can use at once, in addition to those of the log.
func (r *reloader) prepare(now *config.Options) (changed, live []string, use []func(), err error) {
	changed = config.Changed(r.opts, now)
	if r.live != nil {
		if live, use, err = r.live(now, changed); err != nil {
			return nil, nil, nil, err
		}
	}
	useLog, err := r.lines.prepare(now)
	return changed, live, append(use, useLog), err
}
