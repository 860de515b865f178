package backup_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/cluster"
	"clustermaster/cluster/backup"
	"clustermaster/cluster/clustertest"
)

// TestFutureNamesDoNotStopBackups makes a backup by a clock two days ahead, and then by the right
// one, by one two hours ahead, and after a restart.
func TestFutureNamesDoNotStopBackups(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprint("all: ", all), func(t *testing.T) {
			t.Parallel()
			passphrase := filepath.Join(t.TempDir(), "passphrase")
			if err := os.WriteFile(passphrase, []byte("twelve characters\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			folder := backup.Folder{Dir: filepath.Join(t.TempDir(), "backups"), Cluster: "kit",
				Master: "m1"}
			open := func() *backup.Schedule {
				t.Helper()
				s, err := backup.NewSchedule(backup.Plan{Folder: folder, Interval: time.Hour,
					ClockLimit: 30 * time.Second, Keep: 2, All: all, PassphraseFile: passphrase},
					slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			var sched atomic.Pointer[backup.Schedule]
			sched.Store(open())
			var ahead atomic.Int64
			c := clustertest.New(t, 1, func(_ int, cfg *cluster.Config) {
				cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				cfg.LastBackup = func(until time.Time) time.Time { return sched.Load().LastGood(until) }
			})
			ahead.Store(int64(48 * time.Hour))
			c.WaitReady()
			files := &backup.Files{Cluster: c.Nodes[0].Node, Master: "m1", Version: "test",
				Refuse: func(string, string) error { return nil }}
			run := func() (stop func()) {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					if err := sched.Load().Run(ctx, files); err != nil {
						t.Error(err)
					}
				}()
				return func() { cancel(); <-done }
			}
			// has waits for a backup by the present clock, and for so many others.
			has := func(others int) {
				t.Helper()
				c.Wait("a backup is made", func() error {
					kept, err := folder.List()
					if err != nil {
						return err
					}
					now := 0
					for _, k := range kept {
						if d := time.Until(k.At) - time.Duration(ahead.Load()); d.Abs() < time.Minute {
							now++
						}
					}
					if now != 1 || len(kept) != 1+others {
						return fmt.Errorf("%v", kept)
					}
					return nil
				})
			}
			stop := run()
			has(0)
			ahead.Store(0) // somebody sets the clock
			has(1)
			if alarms := sched.Load().Alarms(); len(alarms) > 0 {
				t.Error(alarms)
			}
			ahead.Store(int64(2 * time.Hour))
			has(1)
			if kept, err := folder.List(); err != nil || time.Until(kept[0].At) > 3*time.Hour {
				t.Errorf("of three, the one named two days ahead stays: %v %v", kept, err)
			}
			ahead.Store(int64(-3 * time.Hour))
			stop()
			sched.Store(open())
			stop = run()
			has(1)
			stop()
		})
	}
}
