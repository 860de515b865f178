package jobcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"clustermaster/value"
	"clustermaster/wire"
)

// Adopted counts what Adopt imported.
type Adopted struct {
	Jobs, Returns int
	Failed        int // files that could not be read or stored
}

// Bounds of what Adopt reads of a Salt master's job: a load or return file, and a name.
const (
	maxAdopted = 128 << 20
	maxName    = 4096
)

// Adopt imports the jobs, with their returns, that the returner local_cache of a Salt master has
// below cachedir/jobs. It does not change known jobs and returns, so it may be called again. With
// dry it stores nothing.
func (c *Cache) Adopt(ctx context.Context, cachedir string, dry bool) (Adopted, error) {
	var done Adopted
	root, err := os.OpenRoot(cachedir) // no link leads outside
	if err != nil {
		return done, fmt.Errorf("import jobs: %w", err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), "jobs", func(p string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist): // no jobs, or removed while walking
			return nil
		case err != nil:
			done.Failed++
			return fs.SkipDir
		case d.Name() != "jid" || !d.Type().IsRegular():
			return nil
		}
		if err := c.adoptJob(ctx, root, path.Dir(p), dry, &done); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			done.Failed++
			c.log.Error("job not imported", "path", path.Join(cachedir, p), "err", err)
		}
		return fs.SkipDir
	})
	return done, err
}

// adoptJob imports the folder of one job.
func (c *Cache) adoptJob(ctx context.Context, root *os.Root, dir string, dry bool,
	done *Adopted) error {
	if _, err := root.Stat(path.Join(dir, "nocache")); err == nil {
		return nil
	}
	name, err := readBounded(root, path.Join(dir, "jid"), maxName)
	if err != nil {
		return err
	}
	jid := strings.TrimSpace(string(name))
	packed, err := readBounded(root, path.Join(dir, ".load.p"), maxAdopted)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a job that was never published
	}
	if err != nil {
		return err
	}
	unpacked, err := value.Unpack(packed)
	load, isMap := unpacked.(value.Map)
	if err != nil || !isMap {
		return fmt.Errorf("read .load.p: not a map: %w", err)
	}
	if jid == "" || len(jid) > 64 {
		return fmt.Errorf("read jid: %q is not a jid", jid)
	}
	done.Jobs++
	if !dry {
		if err := c.SaveLoad(ctx, jid, load, adoptedMinions(root, dir)); err != nil {
			return err
		}
		if end, err := readBounded(root, path.Join(dir, "endtime"), maxName); err == nil {
			if err := c.SaveEndTime(ctx, jid, strings.TrimSpace(string(end))); err != nil {
				return err
			}
		}
	}
	return c.adoptReturns(ctx, root, dir, jid, dry, done)
}

// adoptedMinions lists the minions that a job was sent to.
func adoptedMinions(root *os.Root, dir string) (ids []string) {
	b, err := readBounded(root, path.Join(dir, ".minions.p"), maxAdopted)
	if err != nil {
		return nil
	}
	v, _ := value.Unpack(b)
	list, _ := v.([]any)
	for _, e := range list {
		if id, ok := e.(string); ok && wire.ValidID(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// adoptReturns imports the returns of one job.
func (c *Cache) adoptReturns(ctx context.Context, root *os.Root, dir, jid string, dry bool,
	done *Adopted) error {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id := e.Name()
		if !e.IsDir() || !wire.ValidID(id) {
			continue
		}
		r, err := adoptedReturn(root, path.Join(dir, id))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !dry {
			_, err = c.SaveReturn(ctx, jid, id, r, nil)
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			done.Failed++
			c.log.Error("return not imported", "jid", jid, "id", id, "err", err)
			continue
		}
		done.Returns++
	}
	return nil
}

// adoptedReturn reads return.p and out.p of a minion's folder.
func adoptedReturn(root *os.Root, dir string) (Return, error) {
	var r Return
	b, err := readBounded(root, path.Join(dir, "return.p"), maxAdopted)
	if err != nil {
		return r, err
	}
	v, err := value.Unpack(b)
	m, isMap := v.(value.Map)
	if err != nil || !isMap {
		return r, fmt.Errorf("read return.p: not a map: %w", err)
	}
	for _, f := range []struct {
		to   *value.Raw
		name string
	}{{&r.Return, "return"}, {&r.Retcode, "retcode"}, {&r.Success, "success"}} {
		one, ok := m.Get(f.name)
		if !ok {
			continue
		}
		if *f.to, err = value.Pack(one); err != nil {
			return r, err
		}
	}
	if len(r.Return) == 0 {
		return r, errors.New("read return.p: it has no return")
	}
	if b, err := readBounded(root, path.Join(dir, "out.p"), maxName); err == nil {
		if out, _ := value.Unpack(b); out != nil {
			r.Out, _ = out.(string)
		}
	}
	return r, nil
}

// readBounded reads a regular file of bounded size.
func readBounded(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	case info.Size() > most:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), most)
	}
	return io.ReadAll(io.LimitReader(f, most))
}
