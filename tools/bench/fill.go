package bench

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/tools/figure"
)

// fillPatience bounds the filling of the job cache.
const fillPatience = 2 * time.Hour

// filler sends returns until so many have been sent.
type filler struct {
	*crew
	todo, open *atomic.Int64 // not sent yet; not answered yet
	stop       context.CancelFunc
}

func (f *filler) Request(ctx context.Context) error {
	if f.todo.Add(-1) < 0 {
		<-ctx.Done() // until those under way are answered
		return ctx.Err()
	}
	one, cancel := context.WithTimeout(ctx, RequestPatience)
	err := f.crew.Request(one)
	cancel()
	if f.open.Add(-1) == 0 {
		f.stop()
	}
	return err
}

// fill puts n returns into the job cache, of jobs that all minions of the crowd return for, and
// measures what that takes on disk and how long it takes to look a job up and to list all jobs.
func (b *bencher) fill(ctx context.Context, g *Generator, o *group, n int, c *Column) error {
	before, err := o.disk()
	if err != nil {
		return err
	}
	fills, stop := context.WithCancel(ctx)
	defer stop()
	var todo, open atomic.Int64
	todo.Store(int64(n))
	open.Store(int64(n))
	kind := kinds()[slices.IndexFunc(kinds(), func(k kind) bool { return k.name == "_return+job" })]
	workers := make([]requester, len(g.crews))
	for i, w := range g.crews {
		w.kind = kind
		workers[i] = &filler{crew: w, todo: &todo, open: &open, stop: stop}
	}
	m := new(meter)
	done := b.progress.watch(fmt.Sprintf("fill the job cache with %d returns", n), m, 0)
	start := time.Now()
	drive(fills, workers, pace{measure: fillPatience, patience: fillPatience}, m, nil)
	done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	took := time.Since(start)
	kept := int(m.answered.Load())
	after, err := o.disk()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s in the job cache: ", figure.Plural(kept, "return"))
	c.add(what+"time to take them", took.Seconds(), "s", "")
	c.add(what+"disk, all masters", mb(after.bytes), "MB",
		fmt.Sprintf("%s before", figure.Number(mb(before.bytes))))
	c.add(what+"files, all masters", float64(after.files), "files",
		fmt.Sprintf("%d before", before.files))
	client, err := operator.Dial(ctx, o.masters[0].sockDir())
	if err != nil {
		return fmt.Errorf("look into the job cache: %w", err)
	}
	defer client.Close()
	for _, q := range []operator.RunRequest{{Fun: "jobs.lookup_jid",
		Args: []any{g.job.sharedJID(0)}}, {Fun: "jobs.list_jobs"}} {
		var times []time.Duration
		for range 5 {
			start := time.Now()
			if _, err := client.Run(ctx, q, func(string, any) {}); err != nil {
				return fmt.Errorf("look into the job cache: %s: %w", q.Fun, err)
			}
			times = append(times, time.Since(start))
		}
		slices.Sort(times)
		c.add(what+q.Fun, ms(times[len(times)/2]), "ms", "median of 5")
	}
	return nil
}

// usage is what folders take on disk.
type usage struct {
	bytes int64 // in blocks
	files int
}

// disk is what all masters' folders take.
func (o *group) disk() (usage, error) {
	var sum usage
	for _, m := range o.masters {
		err := filepath.WalkDir(m.dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // a file may go meanwhile
			}
			if info, err := d.Info(); err == nil {
				sum.files++
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					sum.bytes += st.Blocks * 512
				}
			}
			return nil
		})
		if err != nil {
			return sum, fmt.Errorf("measure folder of %s: %w", m.id, err)
		}
	}
	return sum, nil
}
