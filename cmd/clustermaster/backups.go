package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/cluster/backup"
	"clustermaster/internal/smallfile"
	"clustermaster/salt/runner"
)

const (
	backupLook  = 2 * time.Second  // between looks whether a backup is due
	backupRetry = 5 * time.Minute  // after a failure, or the interval if that is shorter
	backupTime  = 30 * time.Minute // bounds one backup with its verification
)

// scheduledBackups makes dated backups, verifies each by a dry restore, and removes old ones.
type scheduledBackups struct {
	r      *rooms
	folder backup.Folder
	made   *prometheus.CounterVec

	mu      sync.Mutex // guards all below
	last    time.Time  // of the newest good one in the folder
	trouble string     // of the last attempt; empty: none
	retry   time.Time  // no attempt before
}

// newScheduledBackups returns nil without the option backup_dir. It looks for the last good backup in the folder.
func newScheduledBackups(r *rooms) (*scheduledBackups, error) {
	o := r.opts
	if o.BackupDir == "" {
		return nil, nil
	}
	b := &scheduledBackups{r: r, folder: backup.Folder{Dir: o.BackupDir, Cluster: o.ClusterID, Master: o.ID}}
	if o.ClusterID == "" {
		b.folder.Cluster = o.ID
	}
	kept, err := b.folder.List()
	if err != nil {
		return nil, err
	}
	if len(kept) > 0 {
		b.last = kept[0].At
	}
	b.made = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "clustermaster_backups_total", Help: "Scheduled backups that this master tried to make, by outcome.",
	}, []string{"outcome"})
	b.made.WithLabelValues("good")
	b.made.WithLabelValues("failed")
	r.reg.MustRegister(b.made, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "clustermaster_backup_age_seconds", Help: "Age of the cluster's last good scheduled backup; without one, since this master's start.",
	}, func() float64 { return b.age().Seconds() }))
	return b, nil
}

// lastGood implements cluster.Config.LastBackup; b may be nil.
func (b *scheduledBackups) lastGood() time.Time {
	if b == nil {
		return time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// newest is the backup that counts: with backup_by all this master's own, else the cluster's.
func (b *scheduledBackups) newest() time.Time {
	if b.r.opts.BackupBy == "all" {
		return b.lastGood()
	}
	return b.r.node.LastBackup()
}

func (b *scheduledBackups) age() time.Duration {
	if last := b.newest(); !last.IsZero() {
		return max(0, b.r.node.Now().Sub(last))
	}
	return time.Since(b.r.began)
}

// mine says whether backups are this master's work now.
func (b *scheduledBackups) mine() bool {
	if !b.r.node.Serving() {
		return false
	}
	return b.r.opts.BackupBy == "all" || b.r.node.IsLeader()
}

// alarms tells what an operator is to look into: a failure, and a backup that is older than two intervals. b may be nil.
func (b *scheduledBackups) alarms() []string {
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
	if age := b.age(); age > 2*b.r.opts.BackupInterval {
		since := "since the start of this master"
		if last := b.newest(); !last.IsZero() {
			since = "since " + last.UTC().Format(time.RFC3339)
		}
		out = append(out, fmt.Sprintf("no good backup %s; one is due every %v (backup_interval)", since, b.r.opts.BackupInterval))
	}
	return out
}

// run makes a backup whenever one is due.
func (b *scheduledBackups) run(ctx context.Context) error {
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

func (b *scheduledBackups) due() bool {
	if !b.mine() {
		return false
	}
	b.mu.Lock()
	wait := time.Now().Before(b.retry)
	b.mu.Unlock()
	last := b.newest()
	return !wait && (last.IsZero() || b.r.node.Now().Sub(last) >= b.r.opts.BackupInterval)
}

// attempt makes one backup; a failure is logged, counted and told by cluster.health until one succeeds.
func (b *scheduledBackups) attempt(ctx context.Context) {
	at := b.r.node.Now().Truncate(time.Second)
	began := time.Now()
	v, err := b.backup(ctx, at)
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		retry := min(backupRetry, b.r.opts.BackupInterval)
		b.trouble, b.retry = err.Error(), time.Now().Add(retry)
		b.made.WithLabelValues("failed").Inc()
		b.r.log.Error("scheduled backup failed; older ones are untouched", "component", "backup", "err", err, "retry", retry)
		return
	}
	b.trouble, b.last = "", at
	b.made.WithLabelValues("good").Inc()
	b.r.log.Info("scheduled backup made and verified", "component", "backup", "path", b.folder.Path(at), "bytes", v.Bytes, "keys", v.Keys,
		"jobs", v.Jobs, "took", time.Since(began).Round(time.Millisecond))
}

// backup writes, verifies and names one backup, and then removes old ones.
func (b *scheduledBackups) backup(ctx context.Context, at time.Time) (runner.BackupView, error) {
	ctx, cancel := context.WithTimeout(ctx, backupTime)
	defer cancel()
	var v runner.BackupView
	passphrase, err := readPassphrase(b.r.opts.BackupPassphraseFile)
	if err != nil {
		return v, err
	}
	if err := os.MkdirAll(b.folder.Dir, 0o700); err != nil {
		return v, fmt.Errorf("make backup_dir: %w", err)
	}
	path := b.folder.Unverified(at)
	v, err = b.verified(ctx, path, passphrase)
	if err != nil {
		_ = os.Remove(path) // nothing but a good backup may look like one
		return v, err
	}
	if err := b.folder.Good(at); err != nil {
		return v, err
	}
	removed, err := b.folder.Prune(b.r.opts.BackupKeep, b.r.opts.BackupBy == "all")
	if err != nil {
		b.r.log.Warn("old backups stay", "component", "backup", "err", err)
	}
	for _, old := range removed {
		b.r.log.Info("old backup removed", "component", "backup", "path", old)
	}
	return v, nil
}

// verified writes a backup and reads it back as a restore would, which must find the same in it.
func (b *scheduledBackups) verified(ctx context.Context, path, passphrase string) (runner.BackupView, error) {
	files := clusterBackups{b.r}
	wrote, err := files.Backup(ctx, path, passphrase, b.r.opts.BackupJobs)
	if err != nil {
		return wrote, err
	}
	if wrote.Note != "" {
		b.r.log.Warn("the scheduled backup lacks jobs", "component", "backup", "reason", wrote.Note)
	}
	read, err := files.Restore(ctx, path, passphrase, b.r.opts.BackupJobs, true)
	if err != nil {
		return wrote, fmt.Errorf("verify: %w", err)
	}
	if read.Keys != wrote.Keys || read.Jobs != wrote.Jobs || !read.At.Equal(wrote.At.Round(0)) {
		return wrote, fmt.Errorf("verify: the file holds %d keys and %d jobs of %v, and %d and %d of %v were written",
			read.Keys, read.Jobs, read.At, wrote.Keys, wrote.Jobs, wrote.At)
	}
	return wrote, nil
}

// readPassphrase reads backup_passphrase_file: one line, in a file that others can't read.
func readPassphrase(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read backup_passphrase_file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return "", fmt.Errorf("backup_passphrase_file %s is open to every user (mode %04o); chmod 0600 it", path, mode)
	}
	text, err := smallfile.Read(path, 4096)
	if err != nil {
		return "", fmt.Errorf("read backup_passphrase_file: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
