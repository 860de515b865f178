package fileserver

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"clustermaster/value"
)

// Changes are the files that came, went or changed between two looks, by absolute path.
type Changes struct{ Added, Removed, Changed []string }

// Data is the data of the event salt/fileserver/roots/update.
func (c Changes) Data() value.Map {
	list := func(paths []string) any {
		out := make([]any, len(paths))
		for i, p := range paths {
			out[i] = p
		}
		return out
	}
	return value.Map{
		{Key: "changed", Value: len(c.Added)+len(c.Removed)+len(c.Changed) > 0},
		{Key: "files", Value: value.Map{{Key: "changed", Value: list(c.Changed)},
			{Key: "removed", Value: list(c.Removed)}, {Key: "added", Value: list(c.Added)}}},
		{Key: "backend", Value: "roots"},
	}
}

// Look compares the files with those of the last look. It walks all roots, so it is for update
// intervals and operators, not for minions. Ignored files do not count.
func (s *Server) Look(ctx context.Context) (Changes, error) {
	now := make(map[string]string)
	for _, env := range s.opts.Roots {
		for _, root := range env.Roots {
			// With the slash a link to the folder is followed.
			err := filepath.WalkDir(root+"/", func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return nil // what cannot be read is not served
				}
				if d.IsDir() && d.Name() == StagingDir {
					return filepath.SkipDir
				}
				if ctx.Err() != nil || len(now) > maxListed {
					return filepath.SkipAll
				}
				if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() &&
					!s.ignored(path) {
					now[path] = strconv.FormatInt(info.ModTime().UnixNano(), 10)
				}
				return nil
			})
			if err != nil {
				return Changes{}, err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return Changes{}, err
	}
	s.lookMu.Lock()
	defer s.lookMu.Unlock()
	var c Changes
	if s.seen != nil {
		for path, at := range now {
			if was, ok := s.seen[path]; !ok {
				c.Added = append(c.Added, path)
			} else if was != at {
				c.Changed = append(c.Changed, path)
			}
		}
		for path := range s.seen {
			if _, ok := now[path]; !ok {
				c.Removed = append(c.Removed, path)
			}
		}
	}
	s.seen = now
	slices.Sort(c.Added)
	slices.Sort(c.Changed)
	slices.Sort(c.Removed)
	return c, nil
}

// Watch looks at each interval and tells what it saw, until ctx ends (option fileserver_events).
func (s *Server) Watch(ctx context.Context, interval time.Duration, tell func(Changes)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		c, err := s.Look(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("looking for changed files failed", "err", err)
		} else if err == nil {
			tell(c)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
