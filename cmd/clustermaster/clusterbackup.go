package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"clustermaster/cluster/backup"
	"clustermaster/salt/runner"
	"clustermaster/store/jobcache"
	"clustermaster/value"
)

// clusterBackups writes backups of this cluster and brings them back.
type clusterBackups struct{ r *rooms }

var _ runner.ClusterBackups = clusterBackups{}

// Backup implements runner.ClusterBackups. The file is new, private and whole, or not there.
func (b clusterBackups) Backup(ctx context.Context, path, passphrase string, jobs bool) (v runner.BackupView, err error) {
	if err := b.r.disk.Refuse("backup", filepath.Dir(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return v, fmt.Errorf("make backup: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return v, fmt.Errorf("%s is there already; name another file", path)
	}
	if err != nil {
		return v, fmt.Errorf("make backup: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = os.Remove(path) // half a backup is none
		}
	}()
	saved, index, err := b.r.node.Save(ctx)
	if err != nil {
		return v, err
	}
	c, _ := b.r.node.State().Cluster()
	about := backup.About{ClusterID: c.ClusterID, UUID: c.UUID, Master: b.r.opts.ID, Version: Version, At: time.Now().UTC(), Index: index}
	for _, m := range b.r.node.Members() {
		about.Members = append(about.Members, backup.Member{ID: m.ID, Addr: m.Addr})
	}
	w, err := backup.NewWriter(f, passphrase, about, saved)
	if err != nil {
		return v, err
	}
	v = backupView(about, len(saved.Keys))
	if jobs {
		if v.Jobs, v.Note, err = b.saveJobs(ctx, w); err != nil {
			return v, err
		}
	}
	if err := errors.Join(w.Close(), f.Sync()); err != nil {
		return v, err
	}
	info, err := f.Stat()
	if err != nil {
		return v, err
	}
	v.Bytes = info.Size()
	return v, syncFolder(filepath.Dir(path))
}

func backupView(a backup.About, keys int) runner.BackupView {
	v := runner.BackupView{ClusterID: a.ClusterID, Master: a.Master, At: a.At.UTC(), Keys: keys}
	for _, m := range a.Members {
		v.Members = append(v.Members, m.ID)
	}
	return v
}

// saveJobs adds all jobs, one after the other. note says what could not be read.
func (b clusterBackups) saveJobs(ctx context.Context, w *backup.Writer) (n int, note string, err error) {
	listed, coverage, err := b.r.jobs.Jobs(ctx)
	if err != nil {
		return 0, "", err
	}
	for _, head := range listed {
		job, ok, err := b.r.jobs.Job(ctx, head.JID)
		if err != nil {
			return n, "", err
		}
		if !ok {
			continue // expired meanwhile
		}
		returns, err := b.r.jobs.Returns(ctx, head.JID)
		if err != nil {
			return n, "", err
		}
		load, err := value.Pack(job.Load)
		if err != nil {
			return n, "", fmt.Errorf("pack job %s: %w", head.JID, err)
		}
		out := backup.Job{JID: job.JID, Load: load, Minions: job.Minions, EndTime: job.EndTime, Returns: make(map[string]backup.Return, len(returns))}
		for id, r := range returns {
			out.Returns[id] = backup.Return{Return: r.Return, Retcode: r.Retcode, Success: r.Success, FunArgs: r.FunArgs, Out: r.Out, Stamp: r.Stamp}
		}
		if err := w.Add(out); err != nil {
			return n, "", err
		}
		n++
	}
	return n, coverage.String(), nil
}

// Restore implements runner.ClusterBackups. The file is read to its end before anything is put back.
func (b clusterBackups) Restore(ctx context.Context, path, passphrase string, jobs, test bool) (v runner.BackupView, err error) {
	f, err := os.Open(path)
	if err != nil {
		return v, fmt.Errorf("read backup: %w", err)
	}
	defer f.Close()
	if _, _, err := backup.Verify(f, passphrase); err != nil {
		return v, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return v, fmt.Errorf("read backup: %w", err)
	}
	r, err := backup.NewReader(f, passphrase)
	if err != nil {
		return v, err
	}
	v = backupView(r.About, len(r.State.Keys))
	kept := make(map[string]bool, len(r.State.Keys))
	for _, k := range r.State.Keys {
		kept[k.ID] = true
	}
	present, _ := b.r.node.State().Keys()
	for _, k := range present {
		if !kept[k.ID] {
			v.Dropped = append(v.Dropped, k.ID)
		}
	}
	if !test {
		unconfirmed, err := b.r.node.PutBack(ctx, r.State)
		if err != nil {
			return v, err
		}
		if len(unconfirmed) > 0 {
			v.Note = fmt.Sprintf("not confirmed in time by %v", unconfirmed)
		}
	}
	for {
		job, err := r.Next()
		if errors.Is(err, io.EOF) {
			return v, nil
		}
		if err == nil && jobs && !test {
			err = b.putJob(ctx, job)
		}
		if err != nil {
			return v, fmt.Errorf("keys and secrets are back, %d jobs too: %w", v.Jobs, err)
		}
		if jobs {
			v.Jobs++
		}
	}
}

// putJob writes a job; what is there already stays.
func (b clusterBackups) putJob(ctx context.Context, j backup.Job) error {
	val, err := value.Unpack(j.Load)
	if err != nil {
		return fmt.Errorf("read job %s: %w", j.JID, err)
	}
	if load, ok := val.(value.Map); ok && len(load) > 0 {
		if err := b.r.jobs.SaveLoad(ctx, j.JID, load, j.Minions); err != nil {
			return err
		}
	}
	for id, r := range j.Returns {
		ret := jobcache.Return{Return: r.Return, Retcode: r.Retcode, Success: r.Success, FunArgs: r.FunArgs, Out: r.Out, Stamp: r.Stamp}
		if _, err := b.r.jobs.SaveReturn(ctx, j.JID, id, ret, nil); err != nil {
			return err
		}
	}
	if j.EndTime != "" {
		return b.r.jobs.SaveEndTime(ctx, j.JID, j.EndTime)
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
