package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	"clustermaster/serve/health"
)

type signalError struct{ name string }

func (e signalError) Error() string { return "received a " + e.name }

// watchSignals ends the master on SIGTERM and SIGINT. On SIGHUP it has the options read again, on
// SIGUSR1 it writes all stacks to a file.
func watchSignals(ctx context.Context, stop context.CancelCauseFunc, systemd *health.Systemd,
	r *reloader, pidfile string, log *slog.Logger) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGUSR2)
	defer signal.Stop(c)
	// A reload may wait for a look-up (sdb://); no other signal waits for it. One more SIGHUP
	// meanwhile means that the files have changed again.
	hup := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				done := systemd.Reloading()
				r.reload()
				done()
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-c:
			switch s {
			case syscall.SIGHUP:
				select {
				case hup <- struct{}{}:
				default:
				}
			case syscall.SIGUSR1:
				dumpStacks(log)
			case syscall.SIGUSR2: // Salt's master starts and stops its profiler yappi
				log.Warn("SIGUSR2 does nothing here; SIGUSR1 writes all stacks")
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
					log.Error("stop took too long; what was acknowledged is on disk", "took",
						stopTime)
				}
				removePidfile(pidfile)
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
