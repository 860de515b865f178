package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"clustermaster/cluster"
	"clustermaster/config"
	"clustermaster/internal/health"
	"clustermaster/internal/saltlog"
)

// Exit codes of Salt's daemons.
const (
	exitConfig = 1
	exitPorts  = 4  // a port is taken
	exitUsage  = 64 // EX_USAGE
	exitNoUser = 67 // EX_NOUSER
)

// daemonMark tells a re-executed process that it is the one in the background.
const daemonMark = "CLUSTERMASTER_DAEMON"

// stopTime bounds an orderly stop; what has not ended by then is cut off.
const stopTime = 4 * time.Second

type masterFlags struct {
	configDir, user, pidFile, logLevel, logFile, logFileLevel string
	daemon, found, version, versions                          bool
}

func parseMasterFlags(args []string) (masterFlags, *pflag.FlagSet, error) {
	var f masterFlags
	fs := pflag.NewFlagSet("salt-master", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVarP(&f.configDir, "config-dir", "c", "", "folder of the file \"master\" (default /etc/salt)")
	fs.StringVarP(&f.user, "user", "u", "", "user to run as (option user)")
	fs.BoolVarP(&f.daemon, "daemon", "d", false, "run in the background")
	fs.StringVar(&f.pidFile, "pid-file", "", "option pidfile")
	fs.StringVarP(&f.logLevel, "log-level", "l", "", "console log level: all garbage trace debug profile info warning error critical quiet")
	fs.StringVar(&f.logFile, "log-file", "", "option log_file")
	fs.StringVar(&f.logFileLevel, "log-file-level", "", "option log_level_logfile")
	fs.BoolVar(&f.found, "found", false, "found the cluster with this master, once, without those of cluster_peers that do not answer")
	fs.Bool("disable-keepalive", false, "accepted and ignored: there is no parent process")
	fs.BoolVar(&f.version, "version", false, "print the version")
	fs.BoolVarP(&f.versions, "versions-report", "V", false, "print the version and those of the libraries")
	err := fs.Parse(args)
	return f, fs, err
}

// saltMaster is the daemon's command.
func saltMaster(ctx context.Context, args []string) int {
	f, fs, err := parseMasterFlags(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Printf("Usage: salt-master [options]\n\nThe Salt master; with cluster_id set, one of a cluster's.\n\nOptions:\n%s\nExamples:\n  salt-master -c /etc/salt -l info\n  salt-master -d\n", fs.FlagUsages())
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "Usage: salt-master [options]\n\nsalt-master: error: %v\n", err)
		return exitUsage
	case f.version || f.versions:
		printVersions("salt-master", f.versions)
		return 0
	}
	opts, warnings, err := config.Load(f.configDir, os.Getenv)
	if err == nil {
		err = f.apply(opts)
	}
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(os.Stderr, "[ERROR   ] %s\n", line)
		}
		return exitConfig
	}
	return runMaster(ctx, opts, f, warnings)
}

// apply lays the flags over the options.
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

// runMaster is the life of the process: ports, folders, user, log, pidfile,
// the master itself, signals.
func runMaster(ctx context.Context, o *config.Options, f masterFlags, warnings []config.Warning) int {
	if busy := busyPort(ctx, o); busy != nil {
		fmt.Fprintf(os.Stderr, "[WARNING ] Unable to bind socket %s, error: %v; Is there another salt-master running?\n", busy.addr, busy.err)
		fmt.Fprintln(os.Stderr, "The salt master is shutdown. The ports are not available to bind")
		return exitPorts
	}
	if f.daemon && os.Getenv(daemonMark) == "" {
		return background()
	}
	ids, err := lookupUser(o.User)
	if err == nil {
		err = makeFolders(o, ids)
	}
	if err == nil {
		err = ids.become()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "[CRITICAL] %v\n", err)
		if errors.As(err, new(*noUserError)) {
			return exitNoUser
		}
		return exitConfig
	}
	lines, err := openLogging(o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "[ERROR   ] %v\n", err)
		return exitConfig
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
	if err := writePidfile(o.PidFile); err != nil {
		log.Error("pidfile not written", "err", err)
	} else {
		defer removePidfile(o.PidFile)
	}

	stopProfile, err := startProfile(os.Getenv(profileEnv))
	if err != nil {
		log.Log(ctx, saltlog.LevelCritical, "master not started", "err", err)
		return exitConfig
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	systemd := health.NewSystemd(log)
	go watchSignals(ctx, stop, systemd, &reloader{opts: o, flags: f, lines: lines, log: log}, log)
	err = serveMaster(ctx, o, f.found, systemd, log)
	for errors.Is(err, cluster.ErrReopen) && ctx.Err() == nil {
		err = serveMaster(ctx, o, false, systemd, log)
	}
	if err := stopProfile(); err != nil {
		log.Error("profile not written", "err", err)
	}
	var sig signalError
	if errors.As(context.Cause(ctx), &sig) {
		fmt.Fprintf(os.Stderr, "The salt master is shutdown. Master received a %s. Exited.\n", sig.name)
		return 0
	}
	if err != nil {
		log.Log(ctx, saltlog.LevelCritical, "master stopped", "err", err)
		return exitConfig
	}
	return 0
}

type signalError struct{ name string }

func (e signalError) Error() string { return "received a " + e.name }

// watchSignals ends the master on SIGTERM and SIGINT. SIGHUP reads the options
// again, SIGUSR1 writes all stacks to a file.
func watchSignals(ctx context.Context, stop context.CancelCauseFunc, systemd *health.Systemd, r *reloader, log *slog.Logger) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(c)
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-c:
			switch s {
			case syscall.SIGHUP:
				done := systemd.Reloading()
				r.reload()
				done()
			case syscall.SIGUSR1:
				dumpStacks(log)
			default:
				name := "SIGTERM"
				if s == syscall.SIGINT {
					name = "SIGINT"
				}
				log.Warn("Master received a " + name + ". Exiting.")
				systemd.Stopping(name)
				stop(signalError{name})
				// A second signal, or an overlong stop, ends the process at once.
				select {
				case <-c:
				case <-time.After(stopTime):
					log.Error("stop took too long; what was acknowledged is on disk", "took", stopTime)
				}
				os.Exit(0)
			}
		}
	}
}

func dumpStacks(log *slog.Logger) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("salt-debug-%d.log", time.Now().Unix()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		log.Error("stack dump not written", "err", err)
		return
	}
	defer f.Close()
	if err := pprof.Lookup("goroutine").WriteTo(f, 2); err != nil {
		log.Error("stack dump not written", "err", err)
		return
	}
	log.Warn("stack dump written", "path", path)
}

type busy struct {
	addr string
	err  error
}

// busyPort tries the ports before anything is changed; the minion ports are
// bound for good only once the master serves.
func busyPort(ctx context.Context, o *config.Options) *busy {
	addrs := []string{o.ListenAddr(o.PublishPort), o.ListenAddr(o.RetPort), o.ResolveHealthListen(), o.ResolveMetricsListen()}
	if o.ClusterID != "" {
		addrs = append(addrs, o.ListenAddr(o.ClusterPoolPort))
	}
	for _, a := range addrs {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", a)
		if err != nil {
			return &busy{a, err}
		}
		ln.Close()
	}
	return nil
}

// background starts this program again, detached, and leaves.
func background() int {
	exe, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "salt-master: find own program:", err)
		return exitConfig
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), daemonMark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "salt-master: start in the background:", err)
		return exitConfig
	}
	return 0
}

// noUserError is a user that the system does not know.
type noUserError struct{ name string }

func (e *noUserError) Error() string {
	return fmt.Sprintf("Failed to prepare the Salt environment for user %s. The user is not available.", e.name)
}

// identity is the user that the master runs as; nothing to do if it is the present one.
type identity struct {
	uid, gid int
	same     bool
}

func lookupUser(name string) (identity, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return identity{}, &noUserError{name}
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	id := identity{uid: uid, gid: gid, same: uid == os.Geteuid()}
	if !id.same && os.Geteuid() != 0 {
		return id, fmt.Errorf("run as user %s: only root can; start salt-master as that user", name)
	}
	return id, nil
}

func (id identity) become() error {
	if id.same {
		return nil
	}
	for _, step := range []func() error{
		func() error { return syscall.Setgroups([]int{id.gid}) },
		func() error { return syscall.Setgid(id.gid) },
		func() error { return syscall.Setuid(id.uid) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("become the master's user: %w", err)
		}
	}
	return nil
}

// makeFolders makes what a master writes to, owned by its user.
func makeFolders(o *config.Options, id identity) error {
	dirs := []struct {
		path string
		mode os.FileMode
	}{
		{o.PkiDir, 0o700}, {o.CacheDir, 0o755}, {o.SockDir, 0o755}, {o.DataDir(), 0o700},
		{filepath.Join(o.CacheDir, "proc"), 0o700}, // a salt-run of Salt notes there what it runs
	}
	keys := o.PkiDir
	if o.ClusterPkiDir != "" {
		keys = o.ClusterPkiDir
		dirs = append(dirs, struct {
			path string
			mode os.FileMode
		}{keys, 0o700})
	}
	for _, sub := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied", "minions_autosign"} {
		dirs = append(dirs, struct {
			path string
			mode os.FileMode
		}{filepath.Join(keys, sub), 0o700})
	}
	for _, d := range dirs {
		if _, err := os.Stat(d.path); err == nil {
			continue
		}
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		if !id.same {
			if err := os.Chown(d.path, id.uid, id.gid); err != nil {
				return fmt.Errorf("give folder to the master's user: %w", err)
			}
		}
	}
	return nil
}

func writePidfile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// removePidfile removes the file only if it still names this process.
func removePidfile(path string) {
	if b, err := os.ReadFile(path); err == nil && string(b) == strconv.Itoa(os.Getpid()) {
		os.Remove(path)
	}
}
