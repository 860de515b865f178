package localcache

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/serve/event"
	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/value/hashtype"
	"clustermaster/wire"
)

// Names in a job's folder (salt/returners/local_cache.py).
const (
	jidFile     = "jid"
	loadFile    = ".load.p"
	minionsFile = ".minions.p"
	noCacheFile = "nocache" // empty: no returns are stored
	endFile     = "endtime" // when the job ended
	returnFile  = "return.p"
	outFile     = "out.p"
)

const (
	maxFollowed = 512              // jobs at a time whose returns are written
	followFor   = 30 * time.Minute // how long to wait for a job's returns
	cleanEvery  = 10 * time.Minute
)

// Mesh gives the events of all masters.
type Mesh interface {
	Follow(prefix string) *event.Subscription
}

// Returns reads what minions returned.
type Returns interface {
	ReadReturns(ctx context.Context, jid string, ids []string,
		fn func(id string, r jobcache.Return) error) error
}

// Options say where the files are and how long to keep them.
type Options struct {
	Dir      string        // cachedir/jobs
	HashType string        // hash_type, for the folders' names
	Keep     time.Duration // keep_jobs_seconds; 0 keeps forever
}

// Deps is what a Cache uses of other packages.
type Deps struct {
	Mesh Mesh
	Jobs Returns
	Log  *slog.Logger
	Reg  prometheus.Registerer
}

// Cache writes the files. Run it; it is safe for concurrent use.
type Cache struct {
	opts    Options
	deps    Deps
	log     *slog.Logger
	newHash func() hash.Hash
	failed  prometheus.Counter
	missed  prometheus.Counter
	now     func() time.Time

	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex // guards the fields below, and the making of folders and files
	followed map[string]*follower
	ended    bool
	running  sync.WaitGroup
}

// New makes a cache. An unknown hash is an error.
func New(o Options, d Deps) (*Cache, error) {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cache{
		opts: o, deps: d, log: d.Log.With("component", "localcache"), now: time.Now,
		followed: make(map[string]*follower),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_localcache_failed_total",
			Help: "Files for Salt's own clients that could not be written.",
		}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_localcache_unfollowed_total",
			Help: "Jobs whose returns were not written for Salt's own clients, because too many were under way.",
		}),
	}
	var err error
	if c.newHash, err = hashtype.Of(o.HashType); err != nil {
		return nil, err
	}
	c.life, c.end = context.WithCancel(context.Background())
	if d.Reg != nil {
		d.Reg.MustRegister(c.failed, c.missed)
	}
	return c, nil
}

// Keep writes a job before its order is answered, and its returns as they come. If the job was kept
// before, its minions add up. The returns of a nocache job are not written.
func (c *Cache) Keep(jid string, load value.Map, minions []string, nocache bool) {
	err := c.write(jid, load, minions)
	if err == nil && nocache {
		err = replace(filepath.Join(c.folder(jid), noCacheFile), nil)
	}
	if err != nil {
		c.failed.Inc()
		c.log.Warn("job not written for Salt's own clients; they will say that its jid does not exist", "jid", jid, "err", err)
		return
	}
	if !nocache {
		c.follow(jid, minions)
	}
}

func (c *Cache) write(jid string, load value.Map, minions []string) error {
	dir := c.folder(jid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := replace(filepath.Join(dir, jidFile), []byte(jid)); err != nil {
		return err
	}
	if err := replacePacked(filepath.Join(dir, minionsFile),
		union(filepath.Join(dir, minionsFile), minions)); err != nil {
		return err
	}
	return replacePacked(filepath.Join(dir, loadFile), jobcache.Redact(load))
}

// union adds minions to those of a file: the parts of a batch have one jid.
func union(path string, minions []string) []string {
	all := slices.Clone(minions)
	if b, err := os.ReadFile(path); err == nil {
		v, _ := value.Unpack(b) // a file that can't be read is replaced
		before, _ := v.([]any)
		for _, id := range before {
			if id, is := id.(string); is {
				all = append(all, id)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// folder returns the folder of a job.
func (c *Cache) folder(jid string) string {
	h := c.newHash()
	h.Write([]byte(jid))
	sum := fmt.Sprintf("%x", h.Sum(nil))
	return filepath.Join(c.opts.Dir, sum[:2], sum[2:])
}

// errNoFolder is the error of an id that Salt's clients would take for something else in a job's
// folder.
var errNoFolder = errors.New("has no folder")

// writeReturn writes one return; an earlier one stays.
func (c *Cache) writeReturn(jid, id string, r jobcache.Return) error {
	if !wire.ValidID(id) || strings.HasPrefix(id, ".") ||
		slices.Contains([]string{jidFile, endFile, noCacheFile}, id) {
		return fmt.Errorf("id %q %w", id, errNoFolder)
	}
	dir := filepath.Join(c.folder(jid), id)
	// return.p is written last; a folder alone is left of a write that failed.
	info, err := os.Stat(filepath.Join(dir, returnFile))
	if err == nil && info.Size() > 0 {
		return nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	ret := value.Map{{Key: "return", Value: fresh(r.Return)}}
	for _, part := range []struct {
		name string
		raw  value.Raw
	}{{"retcode", r.Retcode}, {"success", r.Success}} {
		if len(part.raw) > 0 {
			ret = append(ret, value.Pair{Key: part.name, Value: fresh(part.raw)})
		}
	}
	if r.Out != "" {
		if err := replacePacked(filepath.Join(dir, outFile), r.Out); err != nil {
			return err
		}
	}
	return replacePacked(filepath.Join(dir, returnFile), ret)
}

// fresh returns a value in a form that can be packed anew, with text and bytes apart.
func fresh(r value.Raw) any {
	v, err := r.Unpack()
	if err != nil {
		return nil
	}
	return v
}

func replacePacked(path string, v any) error {
	b, err := value.PackNew(v)
	if err != nil {
		return err
	}
	return replace(path, b)
}

// replace writes a file so that readers see either the old or the new content. A crash may lose it,
// which does no harm.
func replace(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error above is the one to report
	}
	return err
}

// Run removes old jobs until ctx ends. After that no returns are written.
func (c *Cache) Run(ctx context.Context) error {
	tick := time.NewTicker(cleanEvery)
	defer tick.Stop()
	for {
		c.clean()
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.mu.Lock()
			c.ended = true
			c.mu.Unlock()
			c.end()
			c.running.Wait()
			return nil
		}
	}
}

// clean removes jobs older than keep_jobs_seconds, including those that a Salt master left, as that
// master would have.
func (c *Cache) clean() {
	if c.opts.Keep <= 0 {
		return
	}
	oldest := c.now().Add(-c.opts.Keep)
	tops, _ := filepath.Glob(filepath.Join(c.opts.Dir, "??")) // fails only for invalid patterns
	for _, top := range tops {
		jobs, err := os.ReadDir(top)
		if err != nil {
			continue // not a folder
		}
		for _, job := range jobs {
			dir := filepath.Join(top, job.Name())
			info, err := os.Lstat(filepath.Join(dir, jidFile))
			if err != nil {
				info, err = os.Lstat(dir)
			}
			if err != nil || !info.ModTime().Before(oldest) {
				continue
			}
			if err := os.RemoveAll(dir); err != nil {
				c.log.Warn("old job of Salt's own clients not removed", "path", dir, "err", err)
			}
		}
		c.mu.Lock()
		_ = os.Remove(top) // succeeds only if it is empty
		c.mu.Unlock()
	}
}
