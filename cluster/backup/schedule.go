package backup

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/store/smallfile"
)

const (
	backupLook  = 2 * time.Second  // between looks whether a backup is due
	backupRetry = 5 * time.Minute  // after a failure, or the interval if that is shorter
	backupTime  = 30 * time.Minute // bounds one backup with its verification
)

// Plan is when scheduled backups are made, and what of.
type Plan struct {
	Folder         Folder
	Interval       time.Duration // between two backups
	ClockLimit     time.Duration // a backup named with a time further ahead comes from a wrong clock
	Keep           int           // backups that stay
	All            bool          // every master makes its own; else the leader makes the cluster's
	Jobs           bool          // with the job cache
	PassphraseFile string
}

// Schedule makes dated backups, verifies each by a dry restore, and removes old ones. A nil one
// makes none.
type Schedule struct {
	plan  Plan
	began time.Time
	log   *slog.Logger
	made  *prometheus.CounterVec
	files atomic.Pointer[Files] // nil until Run

	mu      sync.Mutex  // guards all below
	good    []time.Time // of good ones in the folder
	trouble string      // of the last attempt; empty: none
	retry   time.Time   // no attempt before
}

// NewSchedule looks for good backups in the folder. Without a folder it returns nil.
func NewSchedule(plan Plan, log *slog.Logger, reg prometheus.Registerer) (*Schedule, error) {
	if plan.Folder.Dir == "" {
		return nil, nil
	}
	b := &Schedule{plan: plan, began: time.Now(), log: log.With("component", "backup")}
	kept, err := plan.Folder.List()
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		b.good = append(b.good, k.At)
	}
	b.made = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "clustermaster_backups_total",
		Help: "Scheduled backups that this master tried to make, by outcome.",
	}, []string{"outcome"})
	b.made.WithLabelValues("good")
	b.made.WithLabelValues("failed")
	reg.MustRegister(b.made, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "clustermaster_backup_age_seconds",
		Help: "Age of the cluster's last good scheduled backup; without one, since this master's start.",
	}, func() float64 { return b.age().Seconds() }))
	return b, nil
}

// LastGood is the time of the newest good backup in the folder that is not later than until, or
// zero.
func (b *Schedule) LastGood(until time.Time) (last time.Time) {
	if b == nil {
		return last
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.good {
		if at.After(last) && !at.After(until) {
			last = at
		}
	}
	return last
}

// newest is the backup that counts: with backup_by all this master's own, else the cluster's.
func (b *Schedule) newest() time.Time {
	files := b.files.Load()
	switch {
	case files == nil:
		return time.Time{}
	case b.plan.All:
		return b.LastGood(b.until(files.Cluster.Now()))
	}
	return files.Cluster.LastBackup()
}

// until is the latest time that a backup may have now.
func (b *Schedule) until(now time.Time) time.Time { return now.Add(b.plan.ClockLimit) }

func (b *Schedule) age() time.Duration {
	now := time.Now()
	if files := b.files.Load(); files != nil {
		now = files.Cluster.Now()
	}
	if last := b.newest(); !last.IsZero() {
		return max(0, now.Sub(last))
	}
	return time.Since(b.began)
}

// mine says whether backups are this master's work now.
func (b *Schedule) mine() bool {
	files := b.files.Load()
	if files == nil || !files.Cluster.Serving() {
		return false
	}
	return b.plan.All || files.Cluster.IsLeader()
}

// Alarms are what an operator should look into: a failure, and a backup older than two intervals.
func (b *Schedule) Alarms() []string {
	if b == nil || !b.mine() {
		return nil
	}
	b.mu.Lock()
	trouble := b.trouble
	b.mu.Unlock()
	var out []string
	if trouble != "" {
		out = append(out, "the last scheduled backup failed: "+trouble)
	}
	if age := b.age(); age > 2*b.plan.Interval {
		since := "since the start of this master"
		if last := b.newest(); !last.IsZero() {
			since = "since " + last.UTC().Format(time.RFC3339)
		}
		out = append(out, fmt.Sprintf("no good backup %s; one is due every %v (backup_interval)",
			since, b.plan.Interval))
	}
	return out
}

// Run makes a backup of files whenever one is due, until ctx ends.
func (b *Schedule) Run(ctx context.Context, files *Files) error {
	b.files.Store(files)
	tick := time.NewTicker(backupLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if b.due() {
			b.attempt(ctx)
		}
	}
}

func (b *Schedule) due() bool {
	if !b.mine() {
		return false
	}
	b.mu.Lock()
	wait := time.Now().Before(b.retry)
	b.mu.Unlock()
	last := b.newest()
	return !wait && (last.IsZero() || b.files.Load().Cluster.Now().Sub(last) >= b.plan.Interval)
}

// attempt makes one backup; a failure is logged, counted and told by cluster.health until one
// succeeds.
func (b *Schedule) attempt(ctx context.Context) {
	at := b.files.Load().Cluster.Now().Truncate(time.Second)
	began := time.Now()
	v, err := b.backup(ctx, at)
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		retry := min(backupRetry, b.plan.Interval)
		b.trouble, b.retry = err.Error(), time.Now().Add(retry)
		b.made.WithLabelValues("failed").Inc()
		b.log.Error("scheduled backup failed; older ones are untouched", "err", err, "retry", retry)
		return
	}
	b.trouble = ""
	b.good = append(slices.DeleteFunc(b.good, func(t time.Time) bool { return t.Before(at) }), at)
	b.made.WithLabelValues("good").Inc()
	b.log.Info("scheduled backup made and verified", "path", b.plan.Folder.Path(at), "bytes",
		v.Bytes, "keys", v.Keys,
		"jobs", v.Jobs, "took", time.Since(began).Round(time.Millisecond))
}

// backup writes, verifies and names one backup, and then removes old ones.
func (b *Schedule) backup(ctx context.Context, at time.Time) (Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, backupTime)
	defer cancel()
	var v Summary
	passphrase, err := readPassphrase(b.plan.PassphraseFile)
	if err != nil {
		return v, err
	}
	if err := os.MkdirAll(b.plan.Folder.Dir, 0o700); err != nil {
		return v, fmt.Errorf("make backup_dir: %w", err)
	}
	path := b.plan.Folder.Unverified(at)
	v, err = b.verified(ctx, path, passphrase)
	if err != nil {
		_ = os.Remove(path) // nothing but a good backup may look like one
		return v, err
	}
	if err := b.plan.Folder.Good(at); err != nil {
		return v, err
	}
	removed, err := b.plan.Folder.Prune(b.plan.Keep, b.plan.All, b.until(at))
	if err != nil {
		b.log.Warn("old backups not removed", "err", err)
	}
	for _, old := range removed {
		b.log.Info("old backup removed", "path", old)
	}
	return v, nil
}

// verified writes a backup and reads it back as a restore would, which must find the same in it.
func (b *Schedule) verified(ctx context.Context, path, passphrase string) (Summary, error) {
	files := b.files.Load()
	wrote, err := files.Backup(ctx, path, passphrase, b.plan.Jobs)
	if err != nil {
		return wrote, err
	}
	if wrote.Note != "" {
		b.log.Warn("the scheduled backup lacks jobs", "reason", wrote.Note)
	}
	read, err := files.Restore(ctx, path, passphrase, b.plan.Jobs, true)
	if err != nil {
		return wrote, fmt.Errorf("verify: %w", err)
	}
	if read.Keys != wrote.Keys || read.Jobs != wrote.Jobs || !read.At.Equal(wrote.At.Round(0)) {
		return wrote,
			fmt.Errorf("verify: the file holds %d keys and %d jobs of %v, and %d and %d of %v were written",
				read.Keys, read.Jobs, read.At, wrote.Keys, wrote.Jobs, wrote.At)
	}
	return wrote, nil
}

// CheckPassphrase is an error if scheduled backups can't be sealed with this file.
func CheckPassphrase(path string) error {
	_, err := readPassphrase(path)
	return err
}

// readPassphrase reads backup_passphrase_file: one line, in a file that others can't read.
func readPassphrase(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read backup_passphrase_file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return "",
			fmt.Errorf("backup_passphrase_file %s is open to every user (mode %04o); chmod 0600 it",
				path, mode)
	}
	text, err := smallfile.Read(path, 4096)
	if err != nil {
		return "", fmt.Errorf("read backup_passphrase_file: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
