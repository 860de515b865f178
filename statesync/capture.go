package statesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// capture reads this master's roots of a tree, of one environment or all, and returns them as a
// manifest. With copies it stores their contents in the blob store. It takes over from the last
// sync's manifest the roots that this master's configuration lacks or that were not synced to it,
// and those of environments that were not asked for, so that what other masters sync is not lost.
func (s *Store) capture(ctx context.Context, tree Tree, env string, copies bool, rec *record,
	report *Report) (*Manifest, error) {
	m, base := &Manifest{Tree: tree}, rec.manifest
	scopes := s.scopes(tree, env)
	if base != nil {
		for _, r := range base.Roots {
			dir, envs, ours := s.place(tree, r.Scope)
			of, _, _ := r.cut()
			switch {
			case !ours && (env == "" || of == env) && s.renumbered(tree, r.Scope, rec):
			case !ours || env != "" && of != env:
				m.Roots = append(m.Roots, r)
			case slices.Contains(scopes, r.Scope):
			case envs != "" && rec.has(r.Scope, dir):
				scopes = append(scopes, r.Scope) // its folder is missing
			default:
				m.Roots = append(m.Roots, r)
			}
		}
	}
	if env != "" && len(scopes) == 0 {
		return nil, fmt.Errorf("saltenv %q: this master's %s have no such environment", env, tree)
	}
	seen := make(map[string]bool) // folders
	for _, sc := range scopes {
		dir, envs, ok := s.place(tree, sc)
		if !ok || len(sc.Env) > maxName {
			report.skip(sc, "a folder of this name is not synced")
			continue
		}
		if seen[dir] {
			continue // two environments may share a folder: only one of them syncs it
		}
		seen[dir] = true
		one := scanner{hashes: s.hashes, hurry: s.opts.reading}
		if copies {
			one.blobs = s.blobs
		}
		now, err := one.scan(ctx, dir)
		if errors.Is(err, errNoRoot) {
			had, synced := base.Root(sc)
			if len(had) > 0 && !(rec.has(sc, dir) && deleted(dir, envs)) {
				return nil,
					fmt.Errorf("root %s of %s is missing, and the other masters have %d items of it: make the "+
						"folder, and use force=True if all of them are to be deleted", dir, sc, len(had))
			}
			// The empty root has it deleted on the other masters too, also on those that are away
			// for some syncs. What was empty before is forgotten when the manifest fills.
			if len(had) > 0 || synced && len(m.Roots) < maxScopes/2 {
				m.Roots = append(m.Roots, Root{Scope: sc})
			}
			continue
		}
		if err != nil {
			return nil, noSpace(err, s.blobs.dir)
		}
		for _, text := range now.skipped {
			report.skip(sc, text)
		}
		for _, text := range now.notes {
			report.skip(sc, text)
		}
		had, _ := base.Root(sc)
		m.Roots = append(m.Roots, Root{Scope: sc, Items: now.withHeld(had)})
	}
	m.sort()
	if err := s.hashes.save(); err != nil {
		s.log.Warn("hashes of files not saved; the next start reads all files again", "err", err)
	}
	if items, _ := m.Totals(); items > maxItems {
		return nil, fmt.Errorf("read %s: more than %d items", tree, maxItems)
	}
	return m, nil
}

// renumbered reports whether a root is one that this master synced as a match of a pattern by its
// number, which only 0.1.0 does.
func (s *Store) renumbered(t Tree, sc Scope, rec *record) bool {
	return slices.ContainsFunc(rec.roots, func(r installedRoot) bool { return r.Scope == sc }) &&
		slices.ContainsFunc(s.envs(t), func(e Env) bool {
			return e.Name == sc.Env && sc.Root >= e.plain() && e.plain() < len(e.Dirs)
		})
}

// deleted reports whether the missing folder dir of an environment in envs was deleted. It says no
// if the nearest folder that is left is empty, can't be read, or is a link that leads nowhere: its
// file system may not be mounted.
func deleted(dir, envs string) bool {
	for at := dir; envs != "" && len(at) >= len(envs); at = filepath.Dir(at) {
		if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		names, err := os.ReadDir(at)
		return err == nil && len(names) > 0
	}
	return false
}

// manifestItems leaves out what can't be synced, and everything below it.
func (l *live) manifestItems() []Item {
	out := make([]Item, 0, len(l.items))
	for i := range l.items {
		if l.items[i].Kind != other {
			out = append(out, l.items[i].Item)
		}
	}
	return out
}

// withHeld adds the last sync's items of the paths that are held here. Their present contents are
// unknown, and the other masters keep what they have.
func (l *live) withHeld(had []Item) []Item {
	items := l.manifestItems()
	if len(l.held) == 0 {
		return items
	}
	held := heldPaths(l.held)
	for _, it := range had {
		if held.covers(it.Path) {
			items = append(items, it)
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Path, b.Path) })
	return items
}

// heldSet holds paths that stay as they are, with everything below them.
type heldSet map[string]bool

func heldPaths(paths []string) heldSet {
	h := make(heldSet, len(paths))
	for _, p := range paths {
		h[p] = true
	}
	return h
}

func (h heldSet) covers(path string) bool {
	for ; path != "" && len(h) > 0; path = parentOf(path) {
		if h[path] {
			return true
		}
	}
	return false
}

// noSpace adds the remedy to an error about a full file system.
func noSpace(err error, dir string) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("no room for contents below %s; nothing was changed in the roots; make room and sync again: %w", dir, err)
	}
	return err
}
