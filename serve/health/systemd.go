package health

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// extendEvery and extendBy stretch systemd's start timeout while a master joins: it may copy much
// first.
const (
	extendEvery = 10 * time.Second
	extendBy    = 60 * time.Second
)

// Systemd tells the service manager how far a master is, where NOTIFY_SOCKET is set (sd_notify(3)).
// Elsewhere it does nothing.
type Systemd struct {
	log      *slog.Logger
	watchdog time.Duration // 0 without WatchdogSec=
	ready    atomic.Bool   // between READY=1 and STOPPING=1
}

// NewSystemd reads the environment that systemd gives a service.
func NewSystemd(log *slog.Logger) *Systemd {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("watchdog of systemd not used", "err", err)
	}
	return &Systemd{log: log, watchdog: every}
}

// Stopping says that an orderly stop has begun.
func (s *Systemd) Stopping(why string) {
	s.ready.Store(false)
	s.tell(daemon.SdNotifyStopping + "\nSTATUS=stopping: " + why)
}

// Reloading says that a reload has begun; done says that it has ended. READY=1 ends one, so a
// master that does not serve yet, or stops, says neither.
func (s *Systemd) Reloading() (done func()) {
	if !s.ready.Load() {
		return func() {}
	}
	s.tell(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading,
		monotonic().Microseconds()))
	return func() {
		if s.ready.Load() {
			s.tell(daemon.SdNotifyReady)
		}
	}
}

// Run reports until ctx ends: STATUS= while the master starts, with more time to start as long as
// its loops answer; READY=1 once serving ends; then a sign of life for the watchdog as long as the
// loops answer. status is one line about what the master does.
func (s *Systemd) Run(ctx context.Context, serving <-chan struct{}, status func() string,
	alive func(context.Context) error) {
	every := time.Second
	if s.watchdog > 0 {
		every = min(every, s.watchdog/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var said string
	var extended, petted time.Time
	ready := false
	for {
		text := ""
		if now := status(); now != said {
			said, text = now, "STATUS="+now+"\n"
		}
		if !ready {
			select {
			case <-serving:
				ready, text = true, text+daemon.SdNotifyReady+"\n"
				s.ready.Store(true)
			default:
				if time.Since(extended) >= extendEvery && alive(ctx) == nil {
					extended, text = time.Now(), fmt.Sprintf("%sEXTEND_TIMEOUT_USEC=%d\n", text,
						extendBy.Microseconds())
				}
			}
		}
		if s.watchdog > 0 && time.Since(petted) >= s.watchdog/3 && alive(ctx) == nil {
			petted, text = time.Now(), text+daemon.SdNotifyWatchdog
		}
		if text != "" {
			s.tell(text)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Systemd) tell(text string) {
	if _, err := daemon.SdNotify(false, text); err != nil {
		s.log.Debug("systemd not notified", "err", err)
	}
}
