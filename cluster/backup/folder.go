package backup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clustermaster/store/durable"
)

// Folder is where dated backups of one cluster lie: CLUSTER-20060102T150405Z-MASTER.sealed, the
// time in UTC. Other files in it are left alone.
type Folder struct {
	Dir     string
	Cluster string // cluster_id, or the master's id without one
	Master  string // id of this master
}

// stamp is the time in a name.
const stamp = "20060102T150405Z"

const (
	ending     = ".sealed"
	unfinished = ".unverified" // after the name, until the file was found to be good
)

// Kept is one backup in a folder.
type Kept struct {
	Path   string
	At     time.Time
	Master string // id of the writer
}

// text makes an id part of a name.
func text(id string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(`/\`, r) {
			return '_'
		}
		return r
	}, id)
}

// Path is where a backup of a time goes.
func (f Folder) Path(at time.Time) string {
	return filepath.Join(f.Dir, text(f.Cluster)+"-"+at.UTC().Format(stamp)+"-"+
		text(f.Master)+ending)
}

// Unverified is where it is written before it takes its name.
func (f Folder) Unverified(at time.Time) string { return f.Path(at) + unfinished }

// Good gives a backup that was verified its name, durably.
func (f Folder) Good(at time.Time) error {
	if err := os.Rename(f.Unverified(at), f.Path(at)); err != nil {
		return fmt.Errorf("name backup: %w", err)
	}
	return durable.SyncDir(f.Dir)
}

// List returns the cluster's backups, newest first. A folder that is not there has none.
func (f Folder) List() ([]Kept, error) {
	entries, err := os.ReadDir(f.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	var out []Kept
	for _, e := range entries {
		if k, ok := f.parse(e.Name()); ok && e.Type().IsRegular() {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b Kept) int { return b.At.Compare(a.At) })
	return out, nil
}

func (f Folder) parse(name string) (Kept, bool) {
	rest, ok := strings.CutPrefix(name, text(f.Cluster)+"-")
	if !ok || len(rest) < len(stamp) {
		return Kept{}, false
	}
	at, err := time.Parse(stamp, rest[:len(stamp)])
	master, dash := strings.CutPrefix(rest[len(stamp):], "-")
	master, end := strings.CutSuffix(master, ending)
	if err != nil || !dash || !end || master == "" {
		return Kept{}, false
	}
	return Kept{Path: filepath.Join(f.Dir, name), At: at, Master: master}, true
}

// Prune removes all but the newest keep backups, and what this master began and did not finish.
// With own only its own backups count. One that is named later than until comes from a wrong clock,
// and counts as older than the others. Prune returns what was removed.
func (f Folder) Prune(keep int, own bool, until time.Time) (removed []string, err error) {
	all, err := f.List()
	if err != nil {
		return nil, err
	}
	if own {
		all = slices.DeleteFunc(all, func(k Kept) bool { return k.Master != text(f.Master) })
	}
	slices.SortStableFunc(all, func(a, b Kept) int {
		return cmp.Compare(max(0, a.At.Compare(until)), max(0, b.At.Compare(until)))
	})
	var errs []error
	for _, k := range all[min(keep, len(all)):] {
		if err := os.Remove(k.Path); err != nil {
			errs = append(errs, fmt.Errorf("remove old backup: %w", err))
			continue
		}
		removed = append(removed, k.Path)
	}
	return removed, errors.Join(append(errs, f.sweep())...)
}

// sweep removes what this master did not finish: nothing else writes under its name.
func (f Folder) sweep() error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	for _, e := range entries {
		name, cut := strings.CutSuffix(e.Name(), unfinished)
		if k, ok := f.parse(name); cut && ok && k.Master == text(f.Master) {
			if err := os.Remove(k.Path + unfinished); err != nil {
				return fmt.Errorf("remove unfinished backup: %w", err)
			}
		}
	}
	return nil
}
