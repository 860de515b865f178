package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/store/durable"
	"clustermaster/store/jobcache"
	"clustermaster/wire"
)

// Cluster is what backups need of the cluster; *cluster.Node is one.
type Cluster interface {
	State() *fsm.State
	// Save returns what a backup holds, and the Raft index that it is of.
	Save(ctx context.Context) (fsm.Saved, uint64, error)
	// PutBack replaces it, and names the masters that did not confirm in time.
	PutBack(ctx context.Context, saved fsm.Saved) (unconfirmed []string, err error)
	// Now is the cluster's time; LastBackup the time of its last good scheduled backup, or zero.
	Now() time.Time
	LastBackup() time.Time
	Serving() bool
	IsLeader() bool
}

// Files writes backups of this cluster and brings them back.
type Files struct {
	Cluster Cluster
	Jobs    *jobcache.Cache
	// Refuse is the error of a folder whose disk is full.
	Refuse  func(what, dir string) error
	Master  string // id of this master
	Version string // its release
	// RotateAESKey is the option rotate_aes_key.
	RotateAESKey bool
}

// Summary is what a backup holds.
type Summary struct {
	ClusterID string
	Master    string // that wrote it
	At        time.Time
	Members   []string // ids, for the record
	Keys      int      // of minions, in all states
	Jobs      int      // written or put back; 0 if they were not asked for
	Bytes     int64    // of the file; 0 if it was read
	Dropped   []string // ids whose keys are here now and not in the backup
	Again     []string // ids with accepted keys in the backup that are not accepted here now
	// tokens of external_auth: valid here now but not in the backup, and the other way round
	TokensLost, TokensAgain int

	Note string // what is not complete
}

// Backup writes a new file, with jobs also the job cache. The file is private and whole, or not
// there.
func (b *Files) Backup(ctx context.Context, path, passphrase string, jobs bool) (v Summary,
	err error) {
	if err := b.Refuse("backup", filepath.Dir(path)); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		return v, fmt.Errorf("make backup: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return v, fmt.Errorf("%s exists already; name another file", path)
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
	saved, index, err := b.Cluster.Save(ctx)
	if err != nil {
		return v, err
	}
	c, _ := b.Cluster.State().Cluster()
	about := About{ClusterID: c.ClusterID, UUID: c.UUID, Master: b.Master, Version: b.Version,
		At: time.Now().UTC(), Index: index}
	for _, m := range b.Cluster.State().Members() {
		about.Members = append(about.Members, Member{ID: m.ID, Addr: m.Addr})
	}
	w, err := NewWriter(f, passphrase, about, saved)
	if err != nil {
		return v, err
	}
	v = summary(about, len(saved.Keys))
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
	return v, durable.SyncDir(filepath.Dir(path))
}

func summary(a About, keys int) Summary {
	v := Summary{ClusterID: a.ClusterID, Master: a.Master, At: a.At.UTC(), Keys: keys}
	for _, m := range a.Members {
		v.Members = append(v.Members, m.ID)
	}
	return v
}

// compare notes what a restore takes away and makes valid again. A cluster without keys is a new
// one, where all of them come again.
func (v *Summary) compare(present, saved fsm.Saved, now time.Time) {
	kept := make(map[string]fsm.Key, len(saved.Keys))
	for _, k := range saved.Keys {
		kept[k.ID] = k
	}
	same := make(map[string]bool)
	for _, k := range present.Keys {
		old, in := kept[k.ID]
		if !in {
			v.Dropped = append(v.Dropped, k.ID)
		}
		if in && k.State == fsm.KeyAccepted && k.Pub == old.Pub {
			same[k.ID] = true
		}
	}
	for _, k := range saved.Keys {
		if k.State == fsm.KeyAccepted && !same[k.ID] && len(present.Keys) > 0 {
			v.Again = append(v.Again, k.ID)
		}
	}
	slices.Sort(v.Again)
	valid := make(map[[32]byte]bool)
	for _, t := range saved.Tokens {
		valid[t.Hash] = t.Expire.After(now)
	}
	for _, t := range present.Tokens {
		if t.Expire.After(now) && !valid[t.Hash] {
			v.TokensLost++
		}
		if t.Expire.After(now) {
			delete(valid, t.Hash)
		}
	}
	for _, is := range valid {
		if is {
			v.TokensAgain++
		}
	}
}

// Restore puts back what the file holds; with test it only says what that would be. The file is
// read to its end before anything is put back.
func (b *Files) Restore(ctx context.Context, path, passphrase string, jobs, test bool) (v Summary,
	err error) {
	f, err := os.Open(path)
	if err != nil {
		return v, fmt.Errorf("read backup: %w", err)
	}
	defer f.Close()
	if _, _, err := Verify(f, passphrase); err != nil {
		return v, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return v, fmt.Errorf("read backup: %w", err)
	}
	r, err := NewReader(f, passphrase)
	if err != nil {
		return v, err
	}
	v = summary(r.About, len(r.State.Keys))
	present, _ := b.Cluster.State().Saved()
	v.compare(present, r.State, b.Cluster.Now())
	if !test {
		if b.RotateAESKey {
			// Minions that the backup does not know, and those deleted since, may have its AES key.
			key, err := wire.NewKey()
			if err != nil {
				return v, fmt.Errorf("make AES key: %w", err)
			}
			r.State.AES = key.String()
		}
		unconfirmed, err := b.Cluster.PutBack(ctx, r.State)
		if err != nil {
			return v, err
		}
		if len(unconfirmed) > 0 {
			v.Note = fmt.Sprintf("not confirmed in time by %v", unconfirmed)
		}
	}
	for last := ""; ; {
		job, err := r.Next()
		if errors.Is(err, io.EOF) {
			return v, nil
		}
		if err == nil && jobs && !test {
			err = b.putJob(ctx, job)
		}
		if err != nil {
			return v, fmt.Errorf("keys, secrets and %d jobs are restored; the rest is not: %w", v.Jobs, err)
		}
		if jobs && job.JID != last { // a large one has several parts
			v.Jobs++
		}
		last = job.JID
	}
}
