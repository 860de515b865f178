package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"clustermaster/config"
	"clustermaster/config/saltlog"
	"clustermaster/serve/health"
)

// Exit codes of Salt's daemons.
const (
	ExitConfig = 1
	ExitPorts  = 4  // a port is taken
	ExitUsage  = 64 // EX_USAGE
	ExitNoUser = 67 // EX_NOUSER
)

// Program is what the process runs.
type Program struct {
	// Versions prints the version, with all also those of the libraries.
	Versions func(all bool)
	// Serve is the master. It returns nil when ctx ends. It asks for the options that are in force
	// each time that it opens the master. Found says that this start founds the cluster.
	Serve func(ctx context.Context, options func() *config.Options, found bool,
		systemd *health.Systemd, log *slog.Logger) error
	// Reload names those changed options that can be reloaded, and checks all of them: an error
	// means that none may be. The functions use, which can't fail, put them in force. Nil: none can
	// be reloaded.
	Reload func(now *config.Options, changed []string) (names []string, use []func(), err error)
}

// stopTime bounds an orderly stop. What has not ended by then is cut off.
const stopTime = 4 * time.Second

type masterFlags struct {
	configDir, user, pidFile, logLevel, logFile, logFileLevel string
	daemon, found, version, versions                          bool
}

func parseMasterFlags(args []string) (masterFlags, *pflag.FlagSet, error) {
	var f masterFlags
	fs := pflag.NewFlagSet("salt-master", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVarP(&f.configDir, "config-dir", "c", "",
		"folder of the file \"master\" (default /etc/salt)")
	fs.StringVarP(&f.user, "user", "u", "", "user to run as (option user)")
	fs.BoolVarP(&f.daemon, "daemon", "d", false, "run in the background")
	fs.StringVar(&f.pidFile, "pid-file", "", "option pidfile")
	fs.StringVarP(&f.logLevel, "log-level", "l", "",
		"console log level: all garbage trace debug profile info warning error critical quiet")
	fs.StringVar(&f.logFile, "log-file", "", "option log_file")
	fs.StringVar(&f.logFileLevel, "log-file-level", "", "option log_level_logfile")
	fs.BoolVar(&f.found, "found", false,
		"found the cluster with this master, once, without those of cluster_peers that do not answer")
	fs.Bool("disable-keepalive", false, "accepted and ignored: there is no parent process")
	fs.BoolVar(&f.version, "version", false, "print the version")
	fs.BoolVarP(&f.versions, "versions-report", "V", false,
		"print the version and those of the libraries")
	path := fs.String("saltfile", "",
		"file with default options (default ./Saltfile or ~/.salt/Saltfile, if one exists)")
	err := fs.Parse(args)
	if err == nil {
		err = saltfile(fs, *path)
	}
	return f, fs, err
}

// saltfileNames are the names of flags in a Saltfile.
var saltfileNames = map[string]string{"config_dir": "config-dir", "daemon": "daemon",
	"log_file": "log-file", "log_level": "log-level", "log_level_logfile": "log-file-level",
	"pidfile": "pid-file", "user": "user"}

// saltfile uses a Saltfile's values as defaults for flags that were not given.
func saltfile(fs *pflag.FlagSet, path string) error {
	settings, err := config.Saltfile(path, "salt-master", os.Getenv)
	if err != nil {
		return err
	}
	for name, flag := range saltfileNames {
		v, ok := settings.Get(name)
		if !ok || v == nil || fs.Changed(flag) {
			continue
		}
		if err := fs.Set(flag, fmt.Sprint(v)); err != nil {
			return fmt.Errorf("saltfile: %s: %w", name, err)
		}
	}
	return nil
}

// Flags returns salt-master's flags, for completion and manuals.
func Flags() *pflag.FlagSet {
	_, fs, _ := parseMasterFlags(nil) // a wrong Saltfile changes no flag
	return fs
}

// usage says what is wrong with the flags, for an unknown one in the words of Salt's commands.
func usage(err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err.Error()
	}
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		return "no such option: -" + unknown.GetSpecifiedName()
	}
	return "no such option: --" + unknown.GetSpecifiedName()
}

// Command implements salt-master. It returns the exit code.
func Command(ctx context.Context, args []string, p Program) int {
	f, fs, err := parseMasterFlags(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Printf("Usage: salt-master [options]\n\nThe Salt master; with cluster_id set, one of a cluster's.\n\nOptions:\n%s\nExamples:\n  salt-master -c /etc/salt -l info\n  salt-master -d\n", fs.FlagUsages())
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "Usage: salt-master [options]\n\nsalt-master: error: %s\n", usage(err))
		return ExitUsage
	case f.version || f.versions:
		p.Versions(f.versions)
		return 0
	}
	if f.daemon {
		err = f.absolute()
	}
	var opts *config.Options
	var warnings []config.Warning
	if err == nil {
		opts, warnings, err = config.Load(f.configDir, os.Getenv)
	}
	if err == nil {
		err = f.apply(opts)
	}
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(os.Stderr, "[ERROR   ] %s\n", line)
		}
		return ExitConfig
	}
	return run(ctx, opts, f, warnings, p)
}

// absolute makes the paths of flags and environment absolute, because a master in the background
// leaves the present folder.
func (f *masterFlags) absolute() error {
	abs := func(p *string) (err error) {
		if *p != "" && !saltlog.IsSyslog(*p) {
			if *p, err = filepath.Abs(*p); err != nil {
				return fmt.Errorf("find the present folder: %w; give absolute paths", err)
			}
		}
		return err
	}
	if f.configDir != "" {
		f.configDir = config.Dir(f.configDir, os.Getenv)
	}
	err := errors.Join(abs(&f.configDir), abs(&f.pidFile), abs(&f.logFile))
	for _, name := range []string{"SALT_CONFIG_DIR", "SALT_MASTER_CONFIG"} {
		p := os.Getenv(name)
		if p == "" {
			continue
		}
		if name == "SALT_CONFIG_DIR" {
			p = config.Dir(p, os.Getenv)
		}
		if err = errors.Join(err, abs(&p)); err == nil {
			err = os.Setenv(name, p)
		}
	}
	return err
}

// apply overrides the options with the flags.
func (f masterFlags) apply(o *config.Options) error {
	for _, l := range []string{f.logLevel, f.logFileLevel} {
		if _, err := saltlog.ParseLevel(l); err != nil {
			return err
		}
	}
	set := func(to *string, v string) {
		if v != "" {
			*to = v
		}
	}
	set(&o.User, f.user)
	set(&o.PidFile, f.pidFile)
	set(&o.LogLevel, f.logLevel)
	set(&o.LogFile, f.logFile)
	set(&o.LogLevelLogfile, f.logFileLevel)
	return nil
}

// run is the life of the process: ports, folders, user, log, pidfile, the master itself, signals.
func run(ctx context.Context, o *config.Options, f masterFlags, warnings []config.Warning,
	p Program) int {
	if busy := busyPort(ctx, o); busy != nil {
		busy.say(os.Stderr)
		return ExitPorts
	}
	detach := func() error { return nil }
	if f.daemon {
		if os.Getenv(daemonMark) == "" {
			return background()
		}
		detach = inBackground()
	}
	ids, err := lookupUser(o.User)
	if err == nil {
		err = prepare(o, ids)
	}
	if err == nil {
		err = ids.become()
	}
	if err == nil {
		err = reachable(o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "[CRITICAL] %v\n", err)
		if errors.As(err, new(*noUserError)) {
			return ExitNoUser
		}
		return ExitConfig
	}
	lines, err := openLogging(o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "[ERROR   ] %v\n", err)
		return ExitConfig
	}
	defer lines.close()
	log := slog.New(lines.handler)
	for _, w := range warnings {
		level := slog.LevelWarn
		if w.Severe {
			level = slog.LevelError
		}
		log.Log(ctx, level, w.String(), "component", "config")
	}
	closePki(o, log)
	if err := writePidfile(o.PidFile); err != nil {
		log.Error("pidfile not written", "err", err)
	} else {
		defer removePidfile(o.PidFile)
	}

	stopProfile, err := startProfile(os.Getenv(profileEnv))
	if err == nil {
		err = detach()
	}
	if err != nil {
		log.Log(ctx, saltlog.LevelCritical, "master not started", "err", err)
		return ExitConfig
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	systemd := health.NewSystemd(log)
	reload := &reloader{opts: o, inForce: o, flags: f, lines: lines, log: log, live: p.Reload}
	go watchSignals(ctx, stop, systemd, reload, o.PidFile, log)
	boundMemory(log)
	err = p.Serve(ctx, reload.options, f.found, systemd, log)
	if err := stopProfile(); err != nil {
		log.Error("profile not written", "err", err)
	}
	var sig signalError
	if errors.As(context.Cause(ctx), &sig) {
		fmt.Fprintf(os.Stderr, "The salt master is shutdown. Master received a %s. Exited.\n",
			sig.name)
		return 0
	}
	if err != nil {
		log.Log(ctx, saltlog.LevelCritical, "master stopped", "err", err)
		return ExitConfig
	}
	return 0
}
