// Package health answers those who watch a master: a load balancer over HTTP
// (/livez and /readyz with a bare status), Prometheus (/metrics), systemd
// (sd_notify), and supervisors that look at files (cachedir/health).
//
// Lives here: the HTTP listeners and their limits, the watchdog's check of the master's loops.
// Does not: decide what ready means (package cluster), own metrics (every package).
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// State is what the probes ask of the master.
type State interface {
	// Serving reports whether minions get answers here.
	Serving() bool
	// Ready reports whether this master is serving and has heard the leader lately.
	Ready() bool
}

// Probes serves /livez and /readyz on ln until ctx ends: 200 or 503, no body
// that tells a stranger anything.
func Probes(ctx context.Context, ln net.Listener, s State, log *slog.Logger) error {
	mux := http.NewServeMux()
	answer := func(ok func() bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			if !ok() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	mux.Handle("/livez", answer(s.Serving))
	mux.Handle("/readyz", answer(s.Ready))
	return serve(ctx, keepNewest(ln), mux, log)
}

// Metrics serves /metrics on ln, to those that the door lets in, until ctx ends.
func Metrics(ctx context.Context, ln net.Listener, g prometheus.Gatherer, d *Door,
	log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(g,
		promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	return serve(ctx, d.listen(keepNewest(ln)), d.guard(mux), log)
}

func serve(ctx context.Context, ln net.Listener, h http.Handler, log *slog.Logger) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}
